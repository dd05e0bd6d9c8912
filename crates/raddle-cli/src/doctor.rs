pub fn run(_: &crate::cli::DoctorArguments) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
