//! Which leg comes after which, and how long it may take. Pure.

use std::collections::HashMap;

use super::file::{Boot, Campaign};

/// One leg: an arm at a rung in a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Leg {
    /// Index of the arm in the file.
    pub arm: usize,
    /// Its name.
    pub arm_name: String,
    /// From 1.
    pub round: u32,
    /// Concurrency.
    pub rung: u32,
}

impl Leg {
    /// Label of the leg, and the stem of its file.
    pub fn label(&self) -> String {
        format!("{}-r{}-c{}", self.arm_name, self.round, self.rung)
    }
}

/// Legs that share one boot of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// At least one, all of the same arm and round.
    pub legs: Vec<Leg>,
}

/// Every block in order. Even rounds run arms and rungs in reverse, so that a drift over the session pushes a rung in
/// opposite directions in the two rounds (seed, "Spread").
pub fn blocks(campaign: &Campaign) -> Vec<Block> {
    let mut blocks = Vec::new();
    for round in 1..=campaign.rounds {
        let mut arms: Vec<usize> = (0..campaign.arms.len()).collect();
        let mut rungs = campaign.rungs.clone();
        if round % 2 == 0 {
            arms.reverse();
            rungs.reverse();
        }
        for arm in arms {
            let leg = |rung: &u32| Leg { arm, arm_name: campaign.arms[arm].name.clone(), round, rung: *rung };
            let legs: Vec<Leg> = rungs.iter().map(leg).collect();
            match campaign.boot {
                Boot::Block => blocks.push(Block { legs }),
                Boot::Cell => blocks.extend(legs.into_iter().map(|leg| Block { legs: vec![leg] })),
            }
        }
    }
    blocks
}

/// How long legs and boots took, seconds, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Known {
    legs: HashMap<(String, u32), Vec<f64>>,
    boots: HashMap<String, Vec<f64>>,
}

impl Known {
    /// Notes a leg.
    pub fn leg(&mut self, leg: &Leg, seconds: f64) {
        self.legs.entry((leg.arm_name.clone(), leg.rung)).or_default().push(seconds);
    }

    /// Notes a boot.
    pub fn boot(&mut self, arm: &str, seconds: f64) {
        self.boots.entry(arm.to_owned()).or_default().push(seconds);
    }

    /// Estimate for one leg without its boot: the same cell, else another arm at that rung, else the assumption.
    pub fn leg_estimate(&self, leg: &Leg, campaign: &Campaign) -> f64 {
        let mean = |values: &Vec<f64>| proto::stats::mean(values);
        let same = self.legs.get(&(leg.arm_name.clone(), leg.rung)).and_then(mean);
        let other = || self.legs.iter().filter(|((_, rung), _)| *rung == leg.rung).find_map(|(_, values)| mean(values));
        same.or_else(other).unwrap_or_else(|| assumed_leg(leg.rung, campaign))
    }

    /// Estimate for what is left: `blocks` holds the legs still to be run.
    pub fn remaining(&self, blocks: &[Block], campaign: &Campaign) -> f64 {
        blocks.iter().map(|block| self.block_estimate(block, campaign)).sum()
    }

    fn block_estimate(&self, block: &Block, campaign: &Campaign) -> f64 {
        let legs: f64 = block.legs.iter().map(|leg| self.leg_estimate(leg, campaign)).sum();
        let Some(first) = block.legs.first() else { return 0.0 };
        if campaign.arms[first.arm].is_running() {
            return legs;
        }
        let known = self.boots.get(&first.arm_name).and_then(|values| proto::stats::mean(values));
        legs + known.unwrap_or(campaign.assume.boot_sec) + f64::from(campaign.settle_sec)
    }
}

fn assumed_leg(rung: u32, campaign: &Campaign) -> f64 {
    let one = campaign.assume.ttft_sec + f64::from(campaign.client.max_tokens) / campaign.assume.tok_s_per_stream;
    let requests = campaign.client.num_prompts + campaign.warmup(rung);
    f64::from(requests.div_ceil(rung)) * one
}

/// A duration for people: `75 s`, `12 min`, `3 h 05 min`.
pub fn human(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let seconds = seconds.clamp(0.0, 1e9).round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(more: &serde_json::Value) -> Campaign {
        let mut base = serde_json::json!({"corpus": {"file": "c"}, "rungs": [1, 4], "arms": [
            {"name": "A", "url": "http://127.0.0.1:1", "command": ["x"]}, {"name": "B", "url": "http://127.0.0.1:2"}]});
        for (key, value) in more.as_object().unwrap() {
            base[key] = value.clone();
        }
        serde_json::from_value(base).unwrap()
    }

    #[test]
    fn even_rounds_run_backwards_in_both_orders() {
        let labels = |boot: &str| -> Vec<Vec<String>> {
            let campaign = campaign(&serde_json::json!({"boot": boot, "rounds": 3}));
            blocks(&campaign).iter().map(|block| block.legs.iter().map(Leg::label).collect()).collect()
        };
        let flat: Vec<String> = labels("cell").concat();
        let expected =
            "A-r1-c1 A-r1-c4 B-r1-c1 B-r1-c4 B-r2-c4 B-r2-c1 A-r2-c4 A-r2-c1 A-r3-c1 A-r3-c4 B-r3-c1 B-r3-c4";
        assert_eq!(flat.join(" "), expected);
        assert_eq!(labels("block").concat(), flat);
        assert!(labels("cell").iter().all(|block| block.len() == 1));
        assert!(labels("block").iter().all(|block| block.len() == 2));
    }

    #[test]
    fn estimates_prefer_what_was_measured() {
        let campaign = campaign(
            &serde_json::json!({"rounds": 1, "settle_sec": 5, "client": {"num_prompts": 12, "max_tokens": 60},
            "assume": {"boot_sec": 100.0, "tok_s_per_stream": 60.0, "ttft_sec": 1.0}}),
        );
        let all = blocks(&campaign);
        let mut known = Known::default();
        // Rung 1: 16 requests of 2 s; rung 4: 4 turns of 2 s; arm A boots twice, arm B runs already.
        assert!((known.remaining(&all, &campaign) - (2.0 * (32.0 + 8.0) + 2.0 * 105.0)).abs() < 1e-9);
        known.leg(&all[0].legs[0], 50.0);
        known.boot("A", 20.0);
        assert!((known.remaining(&all, &campaign) - (2.0 * (50.0 + 8.0) + 2.0 * 25.0)).abs() < 1e-9);
        known.leg(&all[2].legs[0], 70.0);
        assert!((known.leg_estimate(&all[2].legs[0], &campaign) - 70.0).abs() < 1e-9);
    }

    #[test]
    fn durations_for_people() {
        for (seconds, text) in
            [(0.4, "0 s"), (119.0, "119 s"), (121.0, "3 min"), (7199.0, "120 min"), (11_100.0, "3 h 05 min")]
        {
            assert_eq!(human(seconds), text);
        }
    }
}
