pub fn run(_: &crate::cli::BenchArguments) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
