//! `cargo xtask fuzz calls`: the same calls natively and under raddle.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use raddle_fuzz::campaign::{Explanations, Mode, NotContained, Plan, Runner, replay, run};
use raddle_fuzz::case::{Case, parse, to_text};
use raddle_fuzz::execute::NOT_CONTAINED;
use raddle_fuzz::generate;

#[derive(Parser)]
struct Arguments {
    /// Calls to run in each mode, at least
    #[arg(long, default_value_t = 20_000)]
    calls: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The call that most steps are
    #[arg(long)]
    call: Option<String>,
    /// Runs one case: a seed, or a file
    #[arg(long)]
    replay: Option<String>,
    /// Prints the case of `--replay` as a file would have it, and runs nothing
    #[arg(long)]
    print: bool,
    /// Numbers of carriers, as 1,2
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    carriers: Vec<u8>,
    /// RADDLE_QUANTUM_US
    #[arg(long)]
    quantum_us: Option<u32>,
    /// RADDLE_CHAOS
    #[arg(long)]
    chaos: Option<u64>,
    /// Classes of differences that are shrunk
    #[arg(long, default_value_t = 20)]
    shrink: usize,
    /// The `raddle` command
    #[arg(long)]
    raddle: PathBuf,
    /// The executor
    #[arg(long)]
    executor: PathBuf,
    /// A folder for what the campaign writes
    #[arg(long)]
    folder: PathBuf,
    /// Cases that run first: a folder of them
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Differences that are allowed
    #[arg(long)]
    explanations: Option<PathBuf>,
    /// Prints every call's number of results
    #[arg(long)]
    by_call: bool,
}

fn main() -> Result<ExitCode> {
    match fuzz() {
        Err(error) if error.is::<NotContained>() => {
            eprintln!("fuzz: {error:#}");
            Ok(ExitCode::from(NOT_CONTAINED))
        }
        result => result,
    }
}

fn fuzz() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let explanations = match &arguments.explanations {
        Some(path) => Explanations::load(path)?,
        None => Explanations::none(),
    };
    let runner = runner(&arguments);
    let modes: Vec<_> = arguments
        .carriers
        .iter()
        .map(|&count| Mode::Carriers(count))
        .collect();
    if let Some(name) = &arguments.replay {
        let case = case_of(name, &arguments)?;
        if arguments.print {
            print!("{}", to_text(&case));
            return Ok(ExitCode::SUCCESS);
        }
        let same = replay(&case, &modes, &runner, &explanations)?;
        return Ok(if same {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let plan = Plan {
        seed: arguments.seed,
        calls: arguments.calls,
        focus: arguments.call.clone(),
        modes,
        corpus: arguments.corpus.clone(),
        shrink: arguments.shrink,
    };
    let report = run(&plan, &runner, &explanations)?;
    let found = arguments.folder.join("found");
    let _ = fs::remove_dir_all(&found);
    report.save(&found)?;
    print!("{}", report.text(&explanations));
    if arguments.by_call {
        print!("\n{}", report.calls_text());
    }
    println!(
        "\nthe cases of unexplained differences are in {}",
        found.display()
    );
    println!(
        "fuzz: {} cases, {} unexplained",
        report.cases,
        report.unexplained()
    );
    ensure!(report.cases > 0, "no case ran");
    Ok(if report.unexplained() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn runner(arguments: &Arguments) -> Runner {
    let variable = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
    let quantum = variable(
        "RADDLE_QUANTUM_US",
        arguments.quantum_us.map(|us| us.to_string()),
    );
    let chaos = variable("RADDLE_CHAOS", arguments.chaos.map(|seed| seed.to_string()));
    Runner {
        executor: arguments.executor.clone(),
        raddle: arguments.raddle.clone(),
        folder: arguments.folder.clone(),
        environment: [quantum, chaos].into_iter().flatten().collect(),
    }
}

/// The case of a seed or of a file.
fn case_of(name: &str, arguments: &Arguments) -> Result<Case> {
    if let Ok(seed) = name.parse() {
        let focus = arguments.call.as_deref().and_then(raddle_fuzz::calls::find);
        return Ok(generate::about(seed, focus));
    }
    let text = fs::read_to_string(name).with_context(|| name.to_owned())?;
    parse(&text)
}
