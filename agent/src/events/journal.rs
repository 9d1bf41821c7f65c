//! The journal: every event as a JSON line in `<out>/events.<token>.jsonl`. Log lines are not in it, so that
//! it never holds prompts or generated text (design section 4).

use std::fs::File;
use std::io::Write;

use super::{Item, Subscription};

/// Writes events until the hub closes. The first write that fails ends the journal; the error says why.
pub async fn write_journal(mut events: Subscription, mut file: File) -> std::io::Result<()> {
    while let Some(item) = events.next().await {
        let Item::Event(event) = item else { continue };
        let mut line = serde_json::to_vec(&*event)?;
        line.push(b'\n');
        // One small write to a local file: not worth a thread.
        file.write_all(&line)?;
    }
    Ok(())
}
