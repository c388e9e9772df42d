//! `meta.properties`: whose data a directory holds (Kafka's `MetaProperties`). A directory of another cluster or node is refused.
//!
//! Written in Kafka's version 1, and read in 0 (a broker that used ZooKeeper) and 1. Files that are complete are left as they are.

use crate::{
    config::properties,
    log::io::{Disk, write_atomically},
    types::{BrokerId, TopicId},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

const FILE: &str = "meta.properties";

/// Why the data directories are not this broker's.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    #[error("{}: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("{}: stored node id {stored} doesn't match node.id {expected}", path.display())]
    NodeId { path: PathBuf, stored: BrokerId, expected: BrokerId },
    #[error("{}: Invalid cluster.id. Expected {expected}, but read {stored}", path.display())]
    ClusterId { path: PathBuf, stored: String, expected: String },
    #[error("{}: directory.id {id} is that of another data directory, too: it was copied", path.display())]
    DirectoryId { path: PathBuf, id: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What one file says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Meta {
    version: u8,
    cluster_id: Option<String>,
    node_id: Option<BrokerId>,
    directory_id: Option<String>,
}

/// The cluster id that the directories' files agree on; `None` if there are none yet. Checks that all are this node's.
pub fn cluster_id(disk: &dyn Disk, dirs: &[PathBuf], node_id: BrokerId) -> Result<Option<String>, MetaError> {
    let mut agreed: Option<String> = None;
    let mut directory_ids = BTreeSet::new();
    for (path, meta) in read_all(disk, dirs)? {
        if let Some(stored) = meta.node_id.filter(|stored| *stored != node_id) {
            return Err(MetaError::NodeId { path, stored, expected: node_id });
        }
        match (&agreed, meta.cluster_id) {
            (Some(expected), Some(stored)) if *expected != stored => {
                return Err(MetaError::ClusterId { path, stored, expected: expected.clone() });
            }
            (None, Some(stored)) => agreed = Some(stored),
            _ => {}
        }
        if let Some(id) = meta.directory_id
            && !directory_ids.insert(id.clone())
        {
            return Err(MetaError::DirectoryId { path, id });
        }
    }
    Ok(agreed)
}

/// Writes the file into each directory that has none. A file of version 1 without a directory id gets one (KIP-858).
pub fn write(
    disk: &dyn Disk,
    dirs: &[PathBuf],
    cluster_id: &str,
    node_id: BrokerId,
    mut fresh_id: impl FnMut() -> TopicId,
) -> Result<(), MetaError> {
    let there: BTreeMap<PathBuf, Meta> = read_all(disk, dirs)?.into_iter().collect();
    for dir in unique(dirs) {
        let path = dir.join(FILE);
        let complete = |meta: &Meta| meta.version == 0 || meta.directory_id.is_some();
        if !there.get(&path).is_some_and(complete) {
            let text = format!("cluster.id={cluster_id}\ndirectory.id={}\nnode.id={node_id}\nversion=1\n", fresh_id());
            write_atomically(disk, &path, text.as_bytes())?;
        }
    }
    Ok(())
}

/// The metadata directory is often one of the data directories.
fn unique(dirs: &[PathBuf]) -> BTreeSet<&PathBuf> {
    dirs.iter().collect()
}

fn read_all(disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Vec<(PathBuf, Meta)>, MetaError> {
    let paths = unique(dirs).into_iter().map(|dir| dir.join(FILE)).filter(|path| disk.exists(path));
    paths.map(|path| read(disk, &path).map(|meta| (path, meta))).collect()
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Meta, MetaError> {
    let malformed = |why: String| MetaError::Malformed { path: path.to_owned(), why };
    let text = String::from_utf8(disk.read(path)?).map_err(|_| malformed("it is not text".to_owned()))?;
    let pairs: BTreeMap<String, String> = properties::parse(&text).map_err(|error| malformed(error.to_string()))?.into_iter().collect();
    let version = match pairs.get("version").map(String::as_str) {
        None | Some("0") => 0,
        Some("1") => 1,
        Some(other) => return Err(malformed(format!("version {other} is not known"))),
    };
    let id_key = if version == 0 { "broker.id" } else { "node.id" };
    let number = |text: &String| text.trim().parse().map(BrokerId).map_err(|_| malformed(format!("{id_key} is not a number: {text}")));
    let node_id = pairs.get(id_key).map(number).transpose()?;
    let meta = Meta { version, cluster_id: pairs.get("cluster.id").cloned(), node_id, directory_id: pairs.get("directory.id").cloned() };
    if version == 1 && (meta.cluster_id.is_none() || meta.node_id.is_none()) {
        return Err(malformed("cluster.id or node.id was not found.".to_owned()));
    }
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use super::{super::disk::MemoryDisk, *};

    fn dirs(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    fn fresh() -> impl FnMut() -> TopicId {
        let mut bits = 100;
        move || {
            bits += 1;
            TopicId(uuid::Uuid::from_u128(bits))
        }
    }

    fn disk(files: &[(&str, &str)]) -> MemoryDisk {
        let disk = MemoryDisk::default();
        files.iter().for_each(|(path, text)| write_atomically(&disk, Path::new(path), text.as_bytes()).unwrap());
        disk
    }

    const NODE: BrokerId = BrokerId(1);

    #[test]
    fn what_is_written_is_read_and_written_once() {
        let disk = disk(&[]);
        assert_eq!(cluster_id(&disk, &dirs(&["/a", "/b"]), NODE).unwrap(), None);
        write(&disk, &dirs(&["/a", "/b", "/a"]), "abc", NODE, fresh()).unwrap();
        let text = disk.read(Path::new("/a/meta.properties")).unwrap();
        assert_eq!(text, b"cluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZQ\nnode.id=1\nversion=1\n");
        assert_eq!(cluster_id(&disk, &dirs(&["/a", "/b"]), NODE).unwrap().as_deref(), Some("abc"));
        write(&disk, &dirs(&["/a"]), "abc", NODE, || unreachable!("it has an id")).unwrap();
    }

    #[test]
    fn kafkas_files_are_honoured() {
        let kafkas = "#\n#Mon Jan 01 00:00:00 UTC 2024\ncluster.id=5L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n";
        let disk = disk(&[("/a/meta.properties", kafkas), ("/b/meta.properties", "version=0\nbroker.id=1\n")]);
        let all = dirs(&["/a", "/b", "/c"]);
        let id = cluster_id(&disk, &all, NODE).unwrap().unwrap();
        assert_eq!(id, "5L6g3nShT-eMCtK--X86sw");
        write(&disk, &all, &id, NODE, fresh()).unwrap();
        assert!(String::from_utf8(disk.read(Path::new("/a/meta.properties")).unwrap()).unwrap().contains("directory.id="));
        assert_eq!(disk.read(Path::new("/b/meta.properties")).unwrap(), b"version=0\nbroker.id=1\n");
        assert_eq!(cluster_id(&disk, &all, NODE).unwrap().unwrap(), id);
    }

    #[test]
    fn directories_of_others_are_refused() {
        let meta = |cluster: &str, node: i32| format!("version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id=d\n");
        let refused = |a: &str, b: &str| {
            let disk = disk(&[("/a/meta.properties", a), ("/b/meta.properties", b)]);
            cluster_id(&disk, &dirs(&["/a", "/b"]), NODE).unwrap_err().to_string()
        };
        assert_eq!(refused(&meta("x", 2), ""), "/a/meta.properties: stored node id 2 doesn't match node.id 1");
        assert_eq!(refused(&meta("x", 1), &meta("y", 1)), "/b/meta.properties: Invalid cluster.id. Expected x, but read y");
        assert_eq!(
            refused(&meta("x", 1), &meta("x", 1)),
            "/b/meta.properties: directory.id d is that of another data directory, too: it was copied"
        );
        assert_eq!(refused("version=2", ""), "/a/meta.properties: version 2 is not known");
        assert_eq!(refused("version=1\nnode.id=1", ""), "/a/meta.properties: cluster.id or node.id was not found.");
        assert_eq!(refused("version=1\nnode.id=one", ""), "/a/meta.properties: node.id is not a number: one");
    }
}
