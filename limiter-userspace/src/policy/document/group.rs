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
    /// The prefix lengths of a source, if the group stands for sources.
    pub(super) lengths: Option<KeyPrefix>,
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
