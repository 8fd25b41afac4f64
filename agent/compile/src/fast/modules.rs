//! The types of modules, which have BTF of their own that goes on from the kernel's.
//!
//! Neither tracefs nor the kernel's BTF says which module an event is of. So for the first event whose
//! tracepoint the kernel itself does not have, the BTF of modules is read, each at most once: that of the
//! event's system first, as modules have the same name more often than not, and the others until one has the
//! tracepoint. The blob is taken from the very object that programs are loaded for, so that its numbers of
//! types are right whatever modules come and go: a module that is gone is an error when a program is loaded.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::Arc,
};

use super::compile::TypeNames;
use bpf::sys::btf::{KernelTypes, blob, kernel_types, open};
use kernel::btf::{Btf, BtfError};

/// Where the kernel has a file for itself and for each module.
const DIRECTORY: &str = "/sys/kernel/btf";
/// The name of its own.
const VMLINUX: &str = "vmlinux";

/// Why the types of a tracepoint are not known, which the kernel's own do not have.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// No module's types have the tracepoint.
    #[error("its tracepoint is neither in the kernel's types nor in those of a module")]
    Nowhere,
    /// There are modules, and the kernel does not give their types: without `CAP_SYS_ADMIN` to nobody.
    #[error("the kernel does not give the types of modules, one of which may have its tracepoint: {0}")]
    NotGiven(#[source] io::Error),
    /// Those of a module are not understood.
    #[error("no module's types have its tracepoint, and those of {module} cannot be read: {source}")]
    Unread {
        /// The module.
        module: String,
        /// Why not.
        #[source]
        source: Arc<BtfError>,
    },
}

/// A module, as programs are loaded for its types.
#[derive(Debug)]
pub struct Module {
    object: OwnedFd,
}

impl AsFd for Module {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.object.as_fd()
    }
}

/// A module and its types.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) module: Arc<Module>,
    pub(super) types: Rc<TypeNames>,
}

/// The modules, as far as they were looked at.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Those that were not read yet; `None` before the first question.
    unread: Option<Vec<KernelTypes>>,
    /// Those that have tracepoints.
    read: Vec<Found>,
    /// Which of them has a tracepoint.
    tracepoints: HashMap<String, usize>,
    /// The first one that could not be read.
    failed: Option<(String, Arc<BtfError>)>,
}

impl Modules {
    /// The module that has a tracepoint, which is likely to be the one of this name; `base` is the kernel's
    /// own BTF.
    pub(super) fn with_tracepoint(
        &mut self,
        base: &Btf,
        tracepoint: &str,
        likely: &str,
    ) -> Result<Found, ModuleError> {
        if let Some(&index) = self.tracepoints.get(tracepoint) {
            return Ok(self.read[index].clone());
        }
        let mut unread = match self.unread.take() {
            Some(unread) => unread,
            None => modules().map_err(ModuleError::NotGiven)?,
        };
        // They are taken from the end.
        if let Some(index) = unread.iter().position(|object| object.name == likely) {
            let last = unread.len() - 1;
            unread.swap(index, last);
        }
        let mut found = None;
        while found.is_none()
            && let Some(object) = unread.pop()
        {
            if let Err(error) = self.read(base, &object) {
                self.failed.get_or_insert((object.name, Arc::new(error)));
            }
            found = self.tracepoints.get(tracepoint).map(|&index| self.read[index].clone());
        }
        self.unread = Some(unread);
        found.ok_or_else(|| match &self.failed {
            Some((module, source)) => {
                ModuleError::Unread { module: module.clone(), source: Arc::clone(source) }
            }
            None => ModuleError::Nowhere,
        })
    }

    fn read(&mut self, base: &Btf, of: &KernelTypes) -> Result<(), BtfError> {
        let unread = |source| BtfError::Read { path: format!("{DIRECTORY}/{}", of.name), source };
        let object = open(of.id).map_err(unread)?;
        let btf = Btf::of_module(base, blob(object.as_fd()).map_err(unread)?)?;
        let tracepoints: Vec<String> = btf.own_tracepoints().map(str::to_owned).collect();
        if tracepoints.is_empty() {
            return Ok(());
        }
        for tracepoint in tracepoints {
            self.tracepoints.entry(tracepoint).or_insert(self.read.len());
        }
        self.read.push(Found { module: Arc::new(Module { object }), types: Rc::new(TypeNames::new(&btf)) });
        Ok(())
    }
}

/// The modules that have types.
fn modules() -> io::Result<Vec<KernelTypes>> {
    // Everybody may look there, which spares the other question, that not everybody may ask.
    let has_some = fs::read_dir(DIRECTORY)
        .map_or(true, |entries| entries.flatten().any(|entry| entry.file_name() != VMLINUX));
    let mut found = if has_some { kernel_types()? } else { Vec::new() };
    found.retain(|object| object.name != VMLINUX);
    Ok(found)
}
