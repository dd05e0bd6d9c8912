//! glibc's own test programs, against the installed libc.
//!
//! glibc builds its tests inside its own build, against the libc of that build. Here the folder
//! `support`, which the tests need, becomes a static library by itself, and each test is compiled
//! with the system's headers before glibc's own: a test that needs a declaration that no system
//! header has, or a symbol that libc does not export, does not compile, and is left out. Each
//! program judges by its exit code; 77 means that it can't judge here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::batch::{Batch, Reading};
use crate::conformance::process::{cpus, parallel};
use crate::shell;

/// Folders of headers, searched after the system's: glibc's, the most special first.
const HEADERS: [&str; 11] = [
    "include",
    "sysdeps/unix/sysv/linux/x86_64/64",
    "sysdeps/unix/sysv/linux/x86_64",
    "sysdeps/unix/sysv/linux/include",
    "sysdeps/unix/sysv/linux",
    "sysdeps/nptl",
    "sysdeps/pthread",
    "sysdeps/x86_64",
    "sysdeps/x86",
    "sysdeps/generic",
    "",
];

/// Definitions of glibc's build for `support`, and those that its internal headers expect.
const DEFINITIONS: [&str; 19] = [
    "attribute_hidden",
    "attribute_compat_text_section",
    "libc_hidden_proto(...)",
    "libc_hidden_def(...)",
    "_STACK_GROWS_DOWN 1",
    "TIMEOUTFACTOR 2",
    "IN_MODULE_testsuite 1",
    "OBJDIR_ELF_LDSO_PATH \"/lib64/ld-linux-x86-64.so.2\"",
    "INSTDIR_PATH \"/usr\"",
    "BINDIR_PATH \"/usr/bin\"",
    "SBINDIR_PATH \"/usr/sbin\"",
    "ROOTSBINDIR_PATH \"/usr/sbin\"",
    "SYSCONFDIR_PATH \"/etc\"",
    "COMPLOCALEDIR_PATH \"/usr/lib/locale\"",
    "LIBDIR_PATH \"/usr/lib\"",
    "SLIBDIR_PATH \"/lib/x86_64-linux-gnu\"",
    "SYSROOT_PATH \"/\"",
    "ROOT_PREFIX \"\"",
    "MODULE_NAME testsuite",
];

/// How the names of test programs begin.
const PREFIXES: [&str; 3] = ["tst-", "test-", "bug"];

/// Files of `support` that are programs, or that other files include.
const NOT_IN_THE_LIBRARY: [&str; 5] =
    ["_main", "test-driver", "test-run", "links-dso", "container"];

/// The compiler with everything that tests and `support` need.
struct Compiler {
    glibc: PathBuf,
    folder: PathBuf,
}

/// Builds `support` and the test programs in `folders` of glibc's source.
pub(super) fn build(package: &Path, folder: &Path, folders: &[String]) -> Result<Vec<Batch>> {
    let glibc = unpack(package)?;
    let build = folder.join("build");
    let run = folder.join("run");
    fs::create_dir_all(&run)?;
    let compiler = Compiler::new(glibc.clone(), build)?;
    let library = compiler.support()?;
    let mut sources = Vec::new();
    for part in folders {
        sources.extend(test_sources(&glibc, part)?);
    }
    let built = parallel(cpus(), &sources, |source| {
        compiler.program(source, &library)
    });
    let mut batches = Vec::new();
    for (source, program) in sources.iter().zip(built) {
        if let Some(program) = program? {
            batches.push(Batch {
                name: source.with_extension("").display().to_string(),
                program,
                arguments: Vec::new(),
                folder: run.clone(),
                environment: Vec::new(),
                unprivileged: false,
                reading: Reading::ExitCode,
            });
        }
    }
    println!("{} programs, {} build", sources.len(), batches.len());
    Ok(batches)
}

/// Unpacks the package's one archive of the source. Returns the folder in it.
fn unpack(package: &Path) -> Result<PathBuf> {
    let archives = package.join("usr/src/glibc");
    let find = |is_wanted: &dyn Fn(&Path) -> bool| -> Result<Option<PathBuf>> {
        let entries = fs::read_dir(&archives)?.flatten().map(|entry| entry.path());
        let mut named = entries.filter(|path| path.display().to_string().contains("/glibc-2."));
        Ok(named.find(|path| is_wanted(path)))
    };
    if let Some(folder) = find(&|path| path.join("support").is_dir())? {
        return Ok(folder);
    }
    let archive = find(&|path| path.is_file())?.context("the package holds no archive")?;
    let mut tar = Command::new("tar");
    shell::run(tar.current_dir(&archives).arg("-xf").arg(archive))?;
    find(&|path| path.join("support").is_dir())?.context("the archive holds no glibc")
}

/// The tests of one folder, relative to the source.
fn test_sources(glibc: &Path, part: &str) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for name in names(&glibc.join(part))? {
        if name.ends_with(".c") && PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            sources.push(Path::new(part).join(name));
        }
    }
    Ok(sources)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    Ok(names)
}

impl Compiler {
    fn new(glibc: PathBuf, folder: PathBuf) -> Result<Compiler> {
        for part in ["include", "support", "programs"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let link = folder.join("include/support");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(glibc.join("support"), link)?;
        let paths = [("SRCDIR_PATH", &glibc), ("OBJDIR_PATH", &folder)];
        let paths = paths.map(|(name, path)| format!("{name} \"{}\"", path.display()));
        let all = DEFINITIONS.iter().map(|text| (*text).to_owned());
        let defines = all.chain(paths).map(|text| format!("#define {text}\n"));
        let text = format!("#include <limits.h>\n{}", defines.collect::<String>());
        fs::write(folder.join("include/config.h"), text)?;
        Ok(Compiler { glibc, folder })
    }

    fn cc(&self) -> Command {
        let mut cc = Command::new("cc");
        let include = self.folder.join("include");
        cc.args(["-w", "-O2", "-g", "-std=gnu11", "-D_GNU_SOURCE", "-I"]);
        cc.arg(&include).arg("-I").arg(self.glibc.join("support"));
        cc.arg("-include").arg(include.join("config.h"));
        for headers in HEADERS {
            cc.arg("-idirafter").arg(self.glibc.join(headers));
        }
        cc
    }

    /// Builds the library that the tests need, of the files that compile.
    fn support(&self) -> Result<PathBuf> {
        let library = self.folder.join("libsupport.a");
        if library.exists() {
            return Ok(library);
        }
        let source = self.glibc.join("support");
        let mut files = names(&source)?;
        files.retain(|name| {
            let is_other = NOT_IN_THE_LIBRARY.iter().any(|part| name.contains(part));
            name.ends_with(".c") && (!is_other || name == "support_test_main.c")
        });
        let objects = parallel(cpus(), &files, |name| -> Result<Option<PathBuf>> {
            let object = self.folder.join("support").join(name).with_extension("o");
            let mut cc = self.cc();
            cc.arg("-c").arg(source.join(name)).arg("-o").arg(&object);
            Ok(cc.output()?.status.success().then_some(object))
        });
        let objects = objects.into_iter().collect::<Result<Vec<_>>>()?;
        let objects: Vec<_> = objects.into_iter().flatten().collect();
        ensure!(!objects.is_empty(), "nothing of support/ compiles");
        println!("support: {} files, {} compile", files.len(), objects.len());
        shell::run(Command::new("ar").arg("rcs").arg(&library).args(objects))?;
        Ok(library)
    }

    /// Builds one test; `None` if it does not compile here.
    fn program(&self, source: &Path, library: &Path) -> Result<Option<PathBuf>> {
        let name = source.with_extension("").display().to_string();
        let output = self.folder.join("programs").join(name.replace('/', "_"));
        // A refusal is remembered as well as a program.
        let refusal = output.with_extension("refused");
        if output.exists() || refusal.exists() {
            return Ok(output.exists().then_some(output));
        }
        // A build that is interrupted leaves no program that seems complete.
        let part = output.with_extension("part");
        let mut cc = self.cc();
        cc.arg(self.glibc.join(source))
            .arg("-o")
            .arg(&part)
            .arg(library);
        let compiled = cc.args(["-lpthread", "-lrt", "-lm", "-ldl"]).output()?;
        if compiled.status.success() {
            fs::rename(&part, &output)?;
            return Ok(Some(output));
        }
        fs::write(&refusal, compiled.stderr)?;
        Ok(None)
    }
}
