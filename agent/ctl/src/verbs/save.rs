//! `save`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::super::at::{At, Done, Failure};
use super::super::document::Node;
use super::super::home;
use super::super::saved::write;
use super::OfSession;

/// Save sessions as files that `load` makes sessions of
#[derive(Args, Debug)]
pub struct Save {
    /// Session [default: all]
    #[command(flatten)]
    pub of: OfSession,

    /// All sessions
    #[arg(short, long)]
    pub all: bool,

    /// Replace files
    #[arg(short, long)]
    pub force: bool,

    /// Directory [default: $LTTNG_HOME/.lttng/sessions or $HOME/.lttng/sessions]
    #[arg(short, long, value_name = "DIR")]
    pub output_path: Option<PathBuf>,
}

/// `LTTNG_ERR_SAVE_FILE_EXIST`.
const FILE_EXISTS: u8 = 85;

impl Save {
    pub fn run(&self, at: &mut At) -> Done {
        let named = self.of.session.as_ref().filter(|_| !self.all);
        let name = Node::text("name", named.map_or("*", |name| name));
        let mut parts = vec![Node::Parts("session", vec![name])];
        parts.extend(self.output_path.iter().map(|path| Node::text("path", path.display().to_string())));
        at.output.push(Node::Parts("save", parts));
        let dir = match &self.output_path {
            Some(path) => home::absolute(path).map_err(|error| Failure::new(error.to_string()))?,
            None => at.home()?.saved(),
        };
        let names = match named {
            Some(name) => vec![name.clone()],
            None => at.client()?.sessions()?.into_iter().map(|of| of.name).collect(),
        };
        fs::create_dir_all(&dir).map_err(|error| cannot(&dir, &error))?;
        for name in names {
            let session = at.client()?.session(&name).map_err(|error| Failure::numbered(&error))?;
            if !session.maps.is_empty() {
                at.say.warning(&format!("Maps of session {name} are not saved: LTTng's files have none"));
            }
            let path = dir.join(format!("{name}.lttng"));
            let text = write::file(&session)
                .map_err(|why| Failure::new(format!("Session {name} is not saved: {why}")))?;
            match store(&path, &text, self.force) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(Failure::with(FILE_EXISTS, "Session file already exists"));
                }
                result => result.map_err(|error| cannot(&path, &error))?,
            }
        }
        let place = self.output_path.as_ref().map(|path| format!(" in {}", path.display()));
        let place = place.unwrap_or_default();
        at.say.line(&match named {
            Some(name) => format!("Session {name} saved successfully{place}."),
            None => format!("All sessions have been saved successfully{place}."),
        });
        Ok(())
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("Cannot write {}: {error}", path.display()))
}

/// Writes a file that has its name when it is complete.
fn store(path: &Path, text: &str, force: bool) -> io::Result<()> {
    let new = path.with_extension(format!("new.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o660).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| {
        if force {
            fs::rename(&new, path)
        } else {
            // A link, unlike a new name, replaces nothing.
            fs::hard_link(&new, path)
        }
    });
    // It may have its name already.
    let _ = fs::remove_file(&new);
    written
}
