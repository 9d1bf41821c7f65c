//! Which files a report reads: paths below a directory that match a pattern, in path order.

/// Files matching `dir`/`pattern`, sorted by their text. `*`, `?` and `[...]` work inside a path component and
/// do not match a leading dot. The directory itself is taken literally.
pub fn matching(dir: &str, pattern: &str) -> Result<Vec<String>, glob::PatternError> {
    let options =
        glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    let place = if dir.is_empty() { "." } else { dir };
    let slash = if place.ends_with('/') { "" } else { "/" };
    let mut found: Vec<String> =
        glob::glob_with(&format!("{}{slash}{pattern}", glob::Pattern::escape(place)), options)?
            .filter_map(Result::ok)
            .filter(|path| !path.is_dir())
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a[1]*");
        std::fs::create_dir(&odd).unwrap();
        std::fs::create_dir(odd.join("sub.json")).unwrap();
        for name in
            ["B-r10-c1.json", "B-r2-c1.json", "A-r1-c8.json", ".hidden-r1-c1.json", "manifest.json", "notes.txt"]
        {
            std::fs::write(odd.join(name), "").unwrap();
        }
        let dir = odd.to_str().unwrap();
        let names = |pattern| -> Vec<String> {
            matching(dir, pattern).unwrap().iter().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names("*-r*-c*.json"), ["A-r1-c8.json", "B-r10-c1.json", "B-r2-c1.json"]);
        assert_eq!(names("*.json"), ["A-r1-c8.json", "B-r10-c1.json", "B-r2-c1.json", "manifest.json"]);
        assert_eq!(names("[AB]-r[12]-c?.json"), ["A-r1-c8.json", "B-r2-c1.json"]);
        assert!(names("nothing").is_empty());
        assert!(matching("/no/such/place", "*").unwrap().is_empty());
        assert!(matching(dir, "***").is_err());
    }
}
