//! Sets and tenants as they were read, before overlaps within them are resolved.

use std::rc::Rc;

use ipnet::IpNet;

use super::{
    set_file::SetFile,
    source::{Place, ticked},
};
use crate::policy::model::KeyPrefix;

/// A set or a tenant as it was read.
pub(super) struct Group {
    /// `set` or `tenant`.
    pub(super) what: &'static str,
    pub(super) name: String,
    /// The place of its name.
    pub(super) at: Place,
    /// The prefixes of the document, each with its place.
    pub(super) written: Vec<(IpNet, Place)>,
    /// Its file, and the place where the file is named.
    pub(super) file: Option<(Rc<SetFile>, Place)>,
    /// What becomes of prefixes of the file that are narrower than a source.
    pub(super) narrow: Narrow,
}

/// What becomes of prefixes of a file that are narrower than a source of these lengths.
#[derive(Clone, Copy)]
pub(super) enum Narrow {
    /// They stay, as the group stands for no sources.
    Stay,
    /// They are widened to their source: more is dropped or limited than the file says.
    Widened(KeyPrefix),
    /// They are left out: widened, they would let more pass than the file says, or be of two tenants.
    LeftOut(KeyPrefix),
}

/// A prefix, with the index of its group.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) prefix: IpNet,
    pub(super) group: usize,
    pub(super) origin: Origin,
}

/// Where a prefix was written.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    Document(Place),
    /// The line, from 1.
    File(usize),
}

impl Group {
    /// The kind and the name, as findings begin with them.
    pub(super) fn object(&self) -> String {
        format!("{} {}", self.what, ticked(&self.name))
    }

    /// The name with the path of its file, if it has one.
    pub(super) fn path(&self) -> Option<(String, String)> {
        let (file, _) = self.file.as_ref()?;
        Some((self.name.clone(), file.name().to_owned()))
    }

    /// The prefixes of the document; `group` is the index of this group.
    pub(super) fn written(&self, group: usize) -> impl Iterator<Item = Entry> {
        let entry = move |&(prefix, at)| Entry { prefix, group, origin: Origin::Document(at) };
        self.written.iter().map(entry)
    }

    /// The prefixes of the file; `group` is the index of this group.
    pub(super) fn filed(&self, group: usize) -> impl Iterator<Item = Entry> {
        let prefixes = self.file.as_ref().map_or(&[][..], |(file, _)| file.prefixes());
        prefixes.iter().map(move |&(prefix, line)| Entry {
            prefix,
            group,
            origin: Origin::File(line),
        })
    }
}
