//! A folder in an object store. This module contains the asynchronous runtime, so its callers are synchronous and
//! block.

use std::{
    fs::File,
    io::{Read, Write},
    sync::Arc,
};

use ::object_store::{
    ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart, aws::AmazonS3Builder,
    azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, path::Path,
};
use tokio::runtime::Runtime;

use crate::folder::{FileEntry, Folder, TemporaryFile};
use turnwise_core::error::{Error, IoContext, Result};

/// Size of one part of an upload or download, in bytes. Object stores accept up to 10,000 parts per file.
const PART_BYTES: usize = 16 << 20;
/// Maximum number of parts uploaded at the same time.
const PARTS_AT_ONCE: usize = 4;

/// Folder in an object store, such as `s3://bucket/folder`. Credentials come from the store's environment variables.
pub(crate) struct RemoteFolder {
    name: String,
    folder: Path,
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

impl RemoteFolder {
    pub(crate) fn open(name: &str) -> Result<Self> {
        // Ignore errors: an error only means that a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (scheme, rest) = name.split_once("://").unwrap_or_default();
        let failed = |e: object_store::Error| failed("open", name, &e);
        let store: Arc<dyn ObjectStore> = match scheme {
            "s3" => Arc::new(AmazonS3Builder::from_env().with_url(name).build().map_err(failed)?),
            "gs" => Arc::new(GoogleCloudStorageBuilder::from_env().with_url(name).build().map_err(failed)?),
            "az" => Arc::new(MicrosoftAzureBuilder::from_env().with_url(name).build().map_err(failed)?),
            _ => return Err(Error::unknown_name("kind of store", scheme, ["s3", "gs", "az", "file"])),
        };
        let folder = rest.split_once('/').map_or("", |(_, folder)| folder);
        let folder =
            Path::parse(folder).map_err(|e| Error::input(format!("{name} is not a valid folder: {e}")))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::Internal(format!("cannot start the runtime for {name}: {e}")))?;
        Ok(RemoteFolder { name: name.trim_end_matches('/').to_owned(), folder, store, runtime })
    }

    fn path(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    fn failed(&self, action: &str, name: &str, e: &object_store::Error) -> Error {
        failed(action, &format!("{}/{name}", self.name), e)
    }
}

fn failed(action: &str, name: &str, e: &object_store::Error) -> Error {
    let hint = match e {
        object_store::Error::Unauthenticated { .. } | object_store::Error::PermissionDenied { .. } => {
            "access denied: check the credentials in the environment"
        }
        _ => "check the name, the network, and the store's variables in the environment (docs/scale.md)",
    };
    Error::unavailable(format!("cannot {action} {name}: {e}")).with_hint(hint.to_owned())
}

/// Reads the next part of a local file, for a multipart upload.
fn part(file: &mut File, path: &std::path::Path) -> Result<Vec<u8>> {
    let mut part = Vec::new();
    Read::take(file, PART_BYTES as u64).read_to_end(&mut part).at("read", path)?;
    Ok(part)
}

impl Folder for RemoteFolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&self.folder)));
        let listed = listed.map_err(|e| failed("list", &self.name, &e))?;
        let found = listed.objects.into_iter().filter_map(|object| {
            Some(FileEntry { name: object.location.filename()?.to_owned(), bytes: object.size })
        });
        let mut found: Vec<FileEntry> = found.collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let bytes = self.runtime.block_on(async { self.store.get(&self.path(name)).await?.bytes().await });
        match bytes {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("read", name, &e)),
        }
    }

    fn temporary(&self, stem: &str) -> Result<TemporaryFile> {
        TemporaryFile::unique_in(&std::env::temp_dir(), stem)
    }

    fn publish(&self, file: &mut TemporaryFile, name: &str) -> Result<()> {
        let mut source = File::open(&file.path).at("open", &file.path)?;
        let bytes = source.metadata().at("read", &file.path)?.len();
        let path = self.path(name);
        // A multipart upload becomes visible only when it is complete.
        self.runtime.block_on(async {
            let failed = |e: object_store::Error| self.failed("write", name, &e);
            if bytes <= PART_BYTES as u64 {
                let all = PutPayload::from(part(&mut source, &file.path)?);
                return self.store.put(&path, all).await.map(drop).map_err(failed);
            }
            let upload = self.store.put_multipart(&path).await.map_err(failed)?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
            for _ in 0..bytes.div_ceil(PART_BYTES as u64) {
                if let Err(e) = upload.wait_for_capacity(PARTS_AT_ONCE).await {
                    // Ignore the result of the abort and report the first error.
                    let _ = upload.abort().await;
                    return Err(failed(e));
                }
                upload.put(part(&mut source, &file.path)?.into());
            }
            upload.finish().await.map(drop).map_err(failed)
        })
    }

    fn is_local(&self) -> bool {
        false
    }

    fn fetch(&self, name: &str) -> Result<TemporaryFile> {
        let file = self.temporary(name)?;
        let mut out = File::create(&file.path).at("create", &file.path)?;
        let path = self.path(name);
        self.runtime.block_on(async {
            let failed = |e: object_store::Error| self.failed("read", name, &e);
            let size = self.store.head(&path).await.map_err(failed)?.size;
            for from in (0..size).step_by(PART_BYTES) {
                let to = size.min(from + PART_BYTES as u64);
                let part = self.store.get_range(&path, from..to).await.map_err(failed)?;
                out.write_all(&part).at("write", &file.path)?;
            }
            Ok::<(), Error>(())
        })?;
        Ok(file)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.runtime.block_on(self.store.delete(&self.path(name))) {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(e) => Err(self.failed("remove", name, &e)),
        }
    }
}
