//! Tests for vector files. They also read the files with independent implementations: Rust crates, and Python packages
//! if installed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use arrow_array::{
    ArrayRef, DictionaryArray, FixedSizeListArray, Float32Array, LargeStringArray, RecordBatch, StringArray,
    cast::AsArray,
    types::{Float32Type, Int32Type},
};
use arrow_schema::{Field, Schema};

use super::*;

const DIM: usize = 3;

/// Numbers that are difficult to write and parse in decimal form.
const ROWS: [[f32; DIM]; 5] = [
    [0.1, -0.0, 1.0],
    [f32::MIN_POSITIVE, f32::MAX, f32::EPSILON],
    [1e-45, 16_777_216.0, -3.4e-5],
    [0.333_333_34, 2.5, 1e10],
    [0.0, 0.0, 0.0],
];

fn ids() -> Vec<String> {
    ["a", "d#1", "订单-7 \"é\\", " spaces ", "last\u{2028}one"].map(str::to_owned).to_vec()
}

fn about() -> BTreeMap<String, String> {
    [("model", "a \"model\""), ("fingerprint", "00ff")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

/// Writes all rows to a file, in chunks of two. Returns its path.
fn written(path: &Path) -> PathBuf {
    let mut sink = create(path, VectorFileFormat::of(path).unwrap(), DIM, &about()).unwrap();
    for (ids, rows) in ids().chunks(2).zip(ROWS.chunks(2)) {
        sink.write(ids, &Vectors::from_flat(DIM, rows.concat()).unwrap()).unwrap();
    }
    assert!(!path.exists(), "the file has its name before it is complete");
    sink.finish().unwrap();
    path.to_owned()
}

/// Reads all rows of a vector file.
fn read(path: &Path) -> Result<Vec<(String, Vec<f32>)>> {
    let mut rows = Vec::new();
    read_rows(path, VectorFileFormat::of(path)?, &mut |id, row| {
        rows.push((id.to_owned(), row.to_vec()));
        Ok(())
    })?;
    Ok(rows)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shard_formats_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["v.arrow", "v.safetensors"] {
        let path = written(&dir.path().join(name));
        let expected: Vec<_> = ids().into_iter().zip(ROWS.map(|row| row.to_vec())).collect();
        assert_eq!(read(&path).unwrap(), expected, "{name}");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read(&path).is_err(), "{name}");
    }
}

#[test]
fn numpy_files_have_a_valid_header() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(written(&dir.path().join("v.npy"))).unwrap();
    assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
    let head = std::str::from_utf8(&bytes[10..128]).unwrap();
    assert_eq!(head.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), }");
    assert!(head.ends_with(" \n"));
    assert_eq!(bytes[128..], bytes_of(&Vectors::from_flat(DIM, ROWS.concat()).unwrap()));
    let text = fs::read_to_string(dir.path().join("v.ids.txt")).unwrap();
    assert_eq!(text.split_terminator('\n').collect::<Vec<_>>(), ids());
    assert_eq!(names(dir.path()), ["v.ids.txt", "v.npy"]);
}

#[test]
fn safetensors_files_are_read_by_the_crate_of_that_name() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(written(&dir.path().join("v.safetensors"))).unwrap();
    let tensors = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let embeddings = tensors.tensor("embeddings").unwrap();
    assert_eq!((embeddings.dtype(), embeddings.shape()), (::safetensors::Dtype::F32, &[5, 3][..]));
    assert_eq!(embeddings.data(), bytes_of(&Vectors::from_flat(DIM, ROWS.concat()).unwrap()));
    let text = std::str::from_utf8(tensors.tensor("ids").unwrap().data()).unwrap();
    assert_eq!(text.split('\n').collect::<Vec<_>>(), ids());
    let (_, metadata) = ::safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata: BTreeMap<String, String> = metadata.metadata().clone().unwrap().into_iter().collect();
    assert_eq!(metadata, about());
    assert_eq!(names(dir.path()), ["v.safetensors"]);
}

#[test]
fn json_numbers_read_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(written(&dir.path().join("v.jsonl"))).unwrap();
    for ((line, id), row) in text.lines().zip(ids()).zip(ROWS) {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["id"], id);
        let numbers = record["embedding"].as_array().unwrap();
        let read: Vec<u32> =
            numbers.iter().map(|n| n.to_string().parse::<f32>().unwrap().to_bits()).collect();
        assert_eq!(read, row.map(f32::to_bits), "{line}");
    }
    assert!(text.starts_with("{\"id\":\"a\",\"embedding\":[0.1,-0.0,1.0]}\n"), "{text}");
    assert_eq!(text.lines().count(), 5);
    // After decompression, compressed output has the same content.
    let packed = fs::read(written(&dir.path().join("v.jsonl.zst"))).unwrap();
    assert_eq!(zstd::decode_all(&packed[..]).unwrap(), text.as_bytes());
}

#[test]
fn arrow_files_are_read_by_the_crate_of_that_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::open(written(&dir.path().join("v.arrow"))).unwrap();
    let reader = arrow_ipc::reader::FileReader::try_new(file, None).unwrap();
    let metadata: BTreeMap<String, String> = reader.schema().metadata().clone().into_iter().collect();
    assert_eq!(metadata, about());
    let (mut read_ids, mut rows) = (Vec::new(), Vec::new());
    for batch in reader.map(Result::unwrap) {
        let ids: &StringArray = batch.column_by_name("id").unwrap().as_string();
        read_ids.extend(ids.iter().map(|id| id.unwrap().to_owned()));
        let lists: &FixedSizeListArray = batch.column_by_name("embedding").unwrap().as_fixed_size_list();
        assert_eq!(lists.value_length(), DIM as i32);
        let numbers: &Float32Array = lists.values().as_primitive::<Float32Type>();
        assert_eq!(numbers.len(), batch.num_rows() * DIM);
        rows.extend(numbers.values().iter().copied());
    }
    assert_eq!((read_ids, rows), (ids(), ROWS.concat()));
    assert_eq!(names(dir.path()), ["v.arrow"]);
}

/// Writes record batches with the columns `id` and `embedding`, using the crate `arrow_ipc`.
fn write_by_arrow_ipc(path: &Path, batches: &[(ArrayRef, FixedSizeListArray)]) {
    let column = |name: &str, array: &ArrayRef| Field::new(name, array.data_type().clone(), true);
    let batches: Vec<[ArrayRef; 2]> =
        batches.iter().map(|(ids, rows)| [ids.clone(), Arc::new(rows.clone())]).collect();
    let fields = vec![column("id", &batches[0][0]), column("embedding", &batches[0][1])];
    let schema = Arc::new(Schema::new_with_metadata(fields, [("other", "metadata")]));
    let mut writer = arrow_ipc::writer::FileWriter::try_new(File::create(path).unwrap(), &schema).unwrap();
    for batch in batches.into_iter().filter(|[ids, _]| !ids.is_empty()) {
        writer.write(&RecordBatch::try_new(schema.clone(), batch.into()).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

/// Creates the column `embedding` from rows. A row or a number can be null.
fn lists(rows: &[Option<[Option<f32>; 2]>]) -> FixedSizeListArray {
    FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows.iter().copied(), 2)
}

#[test]
fn arrow_files_of_the_crate_of_that_name_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.arrow");
    let row = |first: f32| Some([Some(first), Some(0.5)]);
    let strings = |ids: &[&str]| -> ArrayRef { Arc::new(StringArray::from(ids.to_vec())) };
    let two = lists(&[row(1.0), row(2.0)]);

    write_by_arrow_ipc(
        &path,
        &[(strings(&["a", ""]), two.clone()), (strings(&["订单"]), lists(&[row(3.0)]))],
    );
    let expected = [("a", 1.0), ("", 2.0), ("订单", 3.0)].map(|(id, x)| (id.to_owned(), vec![x, 0.5]));
    assert_eq!(read(&path).unwrap(), expected);
    write_by_arrow_ipc(&path, &[(strings(&[]), lists(&[]))]);
    assert_eq!(read(&path).unwrap(), []);

    let refused = |ids: ArrayRef, rows: &FixedSizeListArray, why: &str| {
        write_by_arrow_ipc(&path, &[(ids, rows.clone())]);
        let message = read(&path).unwrap_err().to_string();
        assert!(message.ends_with(why), "{message}");
    };
    refused(Arc::new(StringArray::from(vec![Some("a"), None])), &two, "it has null values");
    refused(strings(&["a", "b"]), &lists(&[row(1.0), None]), "it has null values");
    refused(strings(&["a", "b"]), &lists(&[row(1.0), Some([Some(1.0), None])]), "it has null values");
    refused(Arc::new(LargeStringArray::from(vec!["a", "b"])), &two, "it has different columns");
    let dictionary: DictionaryArray<Int32Type> = ["a", "a"].into_iter().collect();
    refused(Arc::new(dictionary), &two, "it has dictionaries");
}

#[test]
fn an_arrow_file_without_rows_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.arrow");
    let create = || create(&path, VectorFileFormat::Arrow, DIM, &about()).unwrap();
    create().finish().unwrap();
    assert_eq!(read(&path).unwrap(), []);
    let mut sink = create();
    sink.write(&[], &Vectors::from_flat(DIM, Vec::new()).unwrap()).unwrap();
    sink.finish().unwrap();
    assert_eq!(read(&path).unwrap(), []);
    let reader = arrow_ipc::reader::FileReader::try_new(File::open(&path).unwrap(), None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).collect::<Vec<_>>(), [0]);
}

#[test]
fn damaged_files_do_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["v.arrow", "v.safetensors"] {
        let bytes = fs::read(written(&dir.path().join(name))).unwrap();
        let path = dir.path().join(format!("damaged-{name}"));
        for at in 0..bytes.len() {
            fs::write(&path, &bytes[..at]).unwrap();
            assert!(read(&path).is_err(), "{name}: {at} bytes");
            for flipped in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flipped;
                fs::write(&path, &damaged).unwrap();
                // The changed file may still be valid, for example if the byte is part of a vector. Only a panic is a
                // failure.
                let _ = read(&path);
            }
        }
    }
}

#[test]
fn sizes_in_a_safetensors_header_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.safetensors");
    let huge = u64::MAX / 4 + 1;
    for (shape, vectors, ids) in [
        ([1, huge], [0, 4], [4, 5]),
        ([huge, 1], [0, 0], [0, 1]),
        ([0, 3], [0, 0], [u64::MAX, 0]),
        ([1, 1], [0, 4], [4, huge]),
    ] {
        let header = serde_json::json!({
            "embeddings": {"dtype": "F32", "shape": shape, "data_offsets": vectors},
            "ids": {"dtype": "U8", "shape": [1], "data_offsets": ids},
        });
        let header = header.to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend([0, 0, 0, 0, b'a']);
        fs::write(&path, bytes).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.ends_with("its header does not match its size"), "{message}");
    }
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["v.npy", "v.safetensors", "v.jsonl", "v.arrow"] {
        let path = dir.path().join(name);
        fs::write(&path, "old").unwrap();
        let mut sink = create(&path, VectorFileFormat::of(&path).unwrap(), DIM, &about()).unwrap();
        sink.write(&ids()[..1], &Vectors::from_flat(DIM, ROWS[0].to_vec()).unwrap()).unwrap();
        drop(sink);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_file(&path).unwrap();
        assert_eq!(names(dir.path()), [""; 0], "{name}");
    }
}

#[test]
fn the_extension_gives_the_format_and_standard_output_takes_only_jsonl() {
    assert_eq!(VectorFileFormat::of(Path::new("A.NPY")).unwrap(), VectorFileFormat::Npy);
    assert_eq!(VectorFileFormat::of(Path::new("a.jsonl.gz")).unwrap(), VectorFileFormat::Jsonl);
    assert_eq!(VectorFileFormat::of(Path::new("-")).unwrap(), VectorFileFormat::Jsonl);
    assert!(VectorFileFormat::of(Path::new("vectors")).unwrap_err().hint().unwrap().contains("--to"));
    let refused =
        |path: &str, target| create(Path::new(path), target, DIM, &about()).err().unwrap().to_string();
    assert!(refused("-", VectorFileFormat::Npy).contains("npy needs a file"));
    assert!(refused("a.arrow.gz", VectorFileFormat::Arrow).contains("cannot be compressed"));
}

/// Reads files in all formats with the Python packages, using the code from the documentation.
#[test]
fn python_reads_every_format() {
    const SCRIPT: &str = r#"
import json, sys
folder = sys.argv[1]
found = {}
import numpy
vectors = numpy.load(folder + "/v.npy")
ids = open(folder + "/v.ids.txt", encoding="utf-8", newline="\n").read().split("\n")[:-1]
assert vectors.dtype == numpy.float32 and vectors.flags.c_contiguous
found["npy"] = (ids, vectors)
lines = [json.loads(line) for line in open(folder + "/v.jsonl", encoding="utf-8", newline="\n")]
found["jsonl"] = ([l["id"] for l in lines], numpy.array([l["embedding"] for l in lines], dtype="f4"))
try:
    import safetensors.numpy
    tensors = safetensors.numpy.load_file(folder + "/v.safetensors")
    found["safetensors"] = (tensors["ids"].tobytes().decode().split("\n"), tensors["embeddings"])
except ImportError as e: print("skipped:", e)
try:
    import pyarrow
    table = pyarrow.ipc.open_file(folder + "/v.arrow").read_all()
    rows = table["embedding"].combine_chunks()
    found["arrow"] = (table["id"].to_pylist(), rows.flatten().to_numpy().reshape(len(rows), -1))
    assert table.schema.metadata[b"fingerprint"] == b"00ff"
except ImportError as e: print("skipped:", e)
for name, (ids, vectors) in found.items():
    print(name, vectors.shape, json.dumps(ids), numpy.ascontiguousarray(vectors, dtype="<f4").tobytes().hex())
"#;
    let python = std::env::var_os("TURNWISE_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let has_numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !has_numpy.is_ok_and(|o| o.status.success()) {
        let mut err = std::io::stderr();
        let _ = writeln!(
            err,
            "skipped: {python:?} with numpy is not available (TURNWISE_TEST_PYTHON names another)"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["v.npy", "v.safetensors", "v.jsonl", "v.arrow"] {
        written(&dir.path().join(name));
    }
    let output = Command::new(&python).args(["-c", SCRIPT]).arg(dir.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    let hex: String =
        ROWS.concat().iter().flat_map(|v| v.to_le_bytes()).map(|b| format!("{b:02x}")).collect();
    let mut read = 0;
    for line in out.lines() {
        if line.starts_with("skipped") {
            let _ = writeln!(std::io::stderr(), "{line}");
            continue;
        }
        read += 1;
        assert!(line.contains(" (5, 3) ") && line.ends_with(&hex), "{line}");
        let json = &line[line.find('[').unwrap()..=line.rfind(']').unwrap()];
        assert_eq!(serde_json::from_str::<Vec<String>>(json).unwrap(), ids(), "{line}");
    }
    assert!(read >= 2, "{out}");
}
