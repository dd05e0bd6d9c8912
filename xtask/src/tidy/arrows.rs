//! Dependency directions: a crate may name only crates below it, so that the folder names tell
//! the story. Development dependencies are free: tests may look from above.

use anyhow::Result;

use super::{Findings, Subject, Violation};

/// Each crate and the crates of ours that it may name. ARCHITECTURE.md draws the same picture.
const ARROWS: &[(&str, &[&str])] = &[
    ("raddle-arch", &[]),
    ("raddle-sys", &["raddle-arch"]),
    ("raddle-inspect", &[]),
    ("raddle-sched", &["raddle-inspect"]),
    ("raddle-interface", &["raddle-sched", "raddle-inspect"]),
    ("raddle-handles", &["raddle-sched"]),
    ("raddle-patch", &["raddle-sys", "raddle-arch"]),
    (
        "raddle",
        &[
            "raddle-handles",
            "raddle-interface",
            "raddle-arch",
            "raddle-sched",
        ],
    ),
    ("raddle-c", &["raddle"]),
    (
        "raddle-engine",
        &[
            "raddle-sys",
            "raddle-arch",
            "raddle-sched",
            "raddle-interface",
            "raddle-inspect",
        ],
    ),
    (
        "raddle-kernel",
        &[
            "raddle-engine",
            "raddle-sys",
            "raddle-arch",
            "raddle-sched",
            "raddle-inspect",
        ],
    ),
    (
        "raddle-preload",
        &[
            "raddle-kernel",
            "raddle-patch",
            "raddle-interface",
            "raddle-engine",
            "raddle-sys",
            "raddle-arch",
            "raddle-sched",
            "raddle-inspect",
        ],
    ),
    ("raddle-stacks", &["raddle-inspect"]),
    ("raddle-record", &["raddle-stacks", "raddle-inspect"]),
    (
        "raddle-cli",
        &["raddle-record", "raddle-stacks", "raddle-inspect"],
    ),
    ("raddle-tests", &[]),
    ("raddle-fuzz", &[]),
    ("xtask", &[]),
];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let packages = &subject.workspace.packages;
    let violations = packages.iter().flat_map(|package| {
        let named = package.dependencies.iter().filter(|dependency| {
            dependency.path.is_some() && dependency.kind.as_deref() != Some("dev")
        });
        let named: Vec<_> = named.map(|dependency| dependency.name.as_str()).collect();
        upward(&package.name, &named)
    });
    Ok(Findings {
        looked_at: packages.len(),
        violations: violations.collect(),
    })
}

/// The dependencies of `package` that no arrow allows.
fn upward(package: &str, named: &[&str]) -> Vec<Violation> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package) else {
        let what = "has no place in the picture: add it to ARROWS and to ARCHITECTURE.md";
        return vec![Violation::new(package, what)];
    };
    let wrong = named.iter().filter(|name| !allowed.contains(name));
    wrong
        .map(|name| Violation::new(package, format!("must not depend on {name}")))
        .collect()
}

/// Every package takes the workspace's lints, which deny `unsafe` without a reason.
pub(super) fn check_lints(subject: &Subject<'_>) -> Result<Findings> {
    let mut violations = Vec::new();
    for package in &subject.workspace.packages {
        let manifest = std::fs::read_to_string(&package.manifest_path)?;
        if !inherits_lints(&manifest) {
            let place = package.folder().join("Cargo.toml").display().to_string();
            violations.push(Violation::new(place, "lacks `[lints] workspace = true`"));
        }
    }
    Ok(Findings {
        looked_at: subject.workspace.packages.len(),
        violations,
    })
}

fn inherits_lints(manifest: &str) -> bool {
    let Ok(table) = manifest.parse::<toml::Table>() else {
        return false;
    };
    let lints = table.get("lints").and_then(|lints| lints.get("workspace"));
    lints.and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_found() {
        assert_eq!(upward("raddle-sys", &["raddle-engine"]).len(), 1);
        assert_eq!(
            upward("raddle-cli", &["raddle-inspect", "raddle-engine"]).len(),
            1
        );
        assert!(upward("raddle-engine", &["raddle-sys", "raddle-sched"]).is_empty());
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(upward("raddle-misc", &[]).len(), 1);
    }

    #[test]
    fn the_picture_has_no_cycle() {
        for (index, (name, allowed)) in ARROWS.iter().enumerate() {
            for lower in *allowed {
                let position = ARROWS.iter().position(|(other, _)| other == lower);
                assert!(
                    position.is_some_and(|p| p < index),
                    "{name} -> {lower} points up"
                );
            }
        }
    }

    #[test]
    fn a_manifest_without_lints_is_found() {
        assert!(inherits_lints("[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[lints]\nworkspace = false\n"));
        assert!(!inherits_lints("[package]\nname = \"x\"\n"));
    }
}
