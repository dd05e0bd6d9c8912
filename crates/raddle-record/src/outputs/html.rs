//! An HTML file with the profile and its viewer, speedscope. It needs no network and no other file.
//!
//! | part | is |
//! |---|---|
//! | a policy (CSP) | nothing is loaded; two scripts run, those with these hashes |
//! | a summary | plain text, without scripts |
//! | the profile | speedscope's format in gzip, in base64 |
//! | the viewer | `third-party/speedscope`, as its authors have built it |
//! | `start.js` | gives the profile to the viewer, as a file that is dropped on it |
//!
//! Names of the program stand in the summary and the title, escaped, and in base64.

use std::io::{self, Write};

use base64::prelude::BASE64_STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::columns::WIDTH;
use super::{names, speedscope, summary};
use crate::profile::Profile;

/// The viewer's script, in gzip: the executable has it once.
const VIEWER: &[u8] = include_bytes!("../../../../third-party/speedscope/speedscope.js.gz");
/// The hash of the script, which `third-party/speedscope/README.md` says how to make.
const VIEWER_HASH: &str = "sha256-Erf8+pWx8HYziGVpkD4BFwQ9gQyDlRrJCE40xonvEEQ=";
const VIEWER_STYLE: &str = include_str!("../../../../third-party/speedscope/speedscope.css");
const VIEWER_LICENSE: &str = include_str!("../../../../third-party/speedscope/LICENSE");
const START: &str = include_str!("html/start.js");
const START_HASH: &str = "sha256-6XJVLIxsUPgdcjnMOKRmB4MwsGkJJii7FhnSXDtxKo4=";
const STYLE: &str = include_str!("html/style.css");

/// Writes the page of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let title = format!("{}: raddle record", names::program(profile));
    let file = speedscope::file(profile);
    let summary = summary::text(profile, WIDTH);
    write_page(&title, &summary, file.has_views().then_some(&file), out)
}

/// Writes a page with a text, and with a profile in the viewer if there is one.
pub(super) fn write_page(
    title: &str,
    text: &str,
    profile: Option<&speedscope::File>,
    out: &mut dyn Write,
) -> io::Result<()> {
    head(&escaped(title), out)?;
    let open = if profile.is_some() { "" } else { " open" };
    writeln!(
        out,
        "<details class=\"summary\"{open}><summary>Summary</summary><pre>"
    )?;
    out.write_all(escaped(text).as_bytes())?;
    writeln!(out, "</pre></details>")?;
    if let Some(profile) = profile {
        writeln!(out, "<noscript>The flame graphs need scripts.</noscript>")?;
        write!(
            out,
            "<script type=\"application/octet-stream\" id=\"profile\">"
        )?;
        data(profile, out)?;
        writeln!(out, "</script>\n<script>{START}</script>")?;
        write!(out, "<script>")?;
        io::copy(&mut GzDecoder::new(VIEWER), out)?;
        writeln!(out, "</script>")?;
    }
    writeln!(out, "</body>\n</html>")
}

fn head(title: &str, out: &mut dyn Write) -> io::Result<()> {
    // The rest of the style loads a font.
    let style = VIEWER_STYLE.split("@font-face").next().unwrap_or_default();
    let policy = format!(
        "default-src 'none'; script-src '{VIEWER_HASH}' '{START_HASH}' 'wasm-unsafe-eval'; \
         style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    );
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n\
         <!-- The viewer is speedscope, https://www.speedscope.app\n\n{VIEWER_LICENSE}-->\n\
         <style>{style}</style>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
}

/// Writes the profile in base64.
fn data(profile: &speedscope::File, out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = EncoderWriter::new(out, &BASE64_STANDARD);
    let mut packed = GzEncoder::new(&mut encoder, Compression::default());
    serde_json::to_writer(&mut packed, profile)?;
    packed.finish()?;
    encoder.finish()?;
    Ok(())
}

/// Returns a text that is no part of a tag.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;
    use base64::Engine;
    use sha2::{Digest, Sha256};
    use std::io::Read;

    fn text(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn hash(script: &str) -> String {
        let digest = Sha256::digest(script.as_bytes());
        format!("sha256-{}", BASE64_STANDARD.encode(digest))
    }

    /// The scripts of a page: their opening tags, and their texts.
    fn scripts(page: &str) -> Vec<(&str, &str)> {
        let begins = page.split("<script").skip(1);
        begins
            .map(|rest| rest.split_once('>').unwrap())
            .map(|(tag, rest)| (tag, rest.split_once("</script>").unwrap().0))
            .collect()
    }

    #[test]
    fn the_policy_names_the_scripts() {
        let page = text(&samples::small());
        let scripts = scripts(&page);
        assert_eq!(scripts.len(), 3);
        assert!(scripts[0].0.contains("application/octet-stream"));
        assert_eq!(hash(scripts[1].1), START_HASH);
        assert_eq!(hash(scripts[2].1), VIEWER_HASH);
        for (_, script) in &scripts[1..] {
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(page.contains(VIEWER_LICENSE));
    }

    #[test]
    fn a_page_has_the_profile() {
        let page = text(&samples::small());
        let packed = BASE64_STANDARD.decode(scripts(&page)[0].1).unwrap();
        let mut unpacked = String::new();
        GzDecoder::new(&packed[..])
            .read_to_string(&mut unpacked)
            .unwrap();
        assert!(unpacked.contains("pthread_mutex_lock"));
        assert!(page.contains("worker-1 #600000001"));
        assert!(page.contains("<title>server: raddle record</title>"));
        assert!(page.len() < 520_000, "{}", page.len());
    }

    #[test]
    fn hostile_names_are_text() {
        for profile in samples::hostile() {
            let page = text(&profile);
            let scripts = scripts(&page);
            assert!(scripts.len() == 3 || scripts.is_empty());
            let summary = page.split_once("<pre>").unwrap().1;
            let summary = summary.split_once("</pre>").unwrap().0;
            assert!(!summary.contains(['<', '>', '"']), "{summary}");
            let title = page.split_once("<title>").unwrap().1;
            assert!(!title.split_once("</title>").unwrap().0.contains('<'));
        }
    }

    #[test]
    fn a_page_of_nothing_has_an_open_summary_and_no_scripts() {
        let page = text(&Profile::default());
        assert!(page.contains("<details class=\"summary\" open>"));
        assert!(scripts(&page).is_empty());
    }
}
