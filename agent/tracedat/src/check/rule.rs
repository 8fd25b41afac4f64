//! What is checked: every rule with its name, severity, meaning, and what stock readers do where it is
//! broken.

/// How bad a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; nothing is wrong with the file.
    Note,
    /// The file is readable, but some reader stumbles, or two parts of it contradict each other.
    Warning,
    /// Something is not what the format demands: content is lost, wrong, or cannot be trusted.
    Error,
}

impl Severity {
    /// Its name in texts and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One line of the table of rules, and everything that is derived from it.
macro_rules! rules {
    ($($variant:ident $severity:ident $name:literal: $meaning:literal, $consequence:literal;)*) => {
        /// A rule that a file can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $meaning] $variant,)*
        }

        impl Rule {
            /// Every rule, in the order in which a file is checked.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in texts and JSON, which stays the same.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// How bad it is to break it.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// What it means that it is broken.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// What stock readers (trace-cmd, KernelShark) do with such a file.
            pub const fn consequence(self) -> &'static str {
                match self { $(Self::$variant => $consequence,)* }
            }
        }
    };
}

rules! {
    Source Error "source": "The file cannot be read there.",
        "they fail as well";
    Header Error "header": "The file header is not one of a trace.dat file that can be read.",
        "they refuse the file";
    PageSize Error "page-size": "The page size in the header is not that of the pages.",
        "they cut pages at wrong places, or refuse the file";
    Zlib Note "zlib": "The file is compressed with zlib.",
        "common builds of trace-cmd lack zlib and refuse the file";
    Link Error "link": "The chain of options sections is broken.",
        "trace-cmd prints nothing and exits with 0";
    SectionHeader Error "section-header": "A section header is not what points at it says, or has an unknown flag.",
        "they refuse the file, or show nothing and exit with 0";
    SectionEnd Error "section-end": "A section ends behind the end of the file.",
        "they show what they find, or nothing";
    SectionOverlap Error "section-overlap": "Two sections have bytes in common.",
        "they take one for the other";
    SectionGap Warning "section-gap": "Bytes belong to no section.",
        "`trace-cmd dump` loses the descriptions, which it looks for from section to section";
    SectionMissing Warning "section-missing": "A metadata section is missing.",
        "`trace-cmd convert` fails and `trace-cmd split` crashes; without section 16 nothing is shown";
    SectionForeign Warning "section-foreign": "A section of type information or modules is in an uncompressed file.",
        "trace-cmd 3.4 shows nothing and exits with 0";
    Description Warning "description": "A section's description is no text of the strings.",
        "`trace-cmd dump` shows a wrong name; nothing else";
    Block Error "block": "The sizes before a compressed section do not fit the section.",
        "they show nothing and exit with 0";
    Decompress Error "decompress": "Compressed bytes cannot be decompressed, or their checksum is wrong.",
        "trace-cmd crashes (first chunk of a CPU), ends the CPU's events there (later chunks), or shows nothing (metadata)";
    SectionContent Error "section-content": "The content of a metadata section cannot be taken apart.",
        "they lack the events or names behind it, or refuse the file";
    HeaderPage Error "header-page": "The text of header_page describes no page, or has characters of no kernel.",
        "they refuse the file, or show wrong times and events";
    Format Warning "format": "An event's format text cannot be understood.",
        "they show the event's records as failed to parse, or not at all";
    EventId Error "event-id": "An event's number is not 1 to 65535, or another event has it.",
        "of two events with one number, one is never shown";
    CommonFields Error "common-fields": "An event does not start with the fields that the others start with.",
        "they take pids and flags from wrong bytes";
    Names Warning "names": "A line of the kernel symbols, printk formats or task names is not in their form.",
        "they ignore all lines behind it, or one of two";
    OptionEnd Error "option-end": "An option ends behind its section, or there are bytes behind the last one.",
        "they lose this option and all behind it";
    OptionText Error "option-text": "A text option does not end with NUL, or has one inside.",
        "they read past its end, or show a part";
    OptionValue Error "option-value": "An option's bytes are not what its number promises.",
        "they ignore it, or crash (HOOK, PROCMAPS, and a CPUSTAT of no bytes)";
    OptionTwice Warning "option-twice": "An option that can be there once is there again, with another value.",
        "they take one of them";
    OptionUnknown Note "option-unknown": "An option has a number that is not known.",
        "they skip it";
    CpuCount Error "cpu-count": "Option CPUCOUNT is missing, or less than the highest CPU number plus one.",
        "KernelShark shows nothing, or not the higher CPUs; `trace-cmd report -F` writes out of bounds; files do not convert";
    TopBuffer Error "top-buffer": "There is no top buffer, or more than one.",
        "of several, trace-cmd shows the last";
    BufferOption Error "buffer-option": "A BUFFER option does not lead to trace data.",
        "they do not show the buffer, or refuse the file";
    CpuTwice Error "cpu-twice": "A CPU is twice in one buffer.",
        "trace-cmd shows nothing and exits with 0";
    Extent Error "extent": "The data of a CPU are not inside their section, or overlap others.",
        "they refuse the file (`File possibly truncated`), or show other data";
    Alignment Warning "alignment": "Uncompressed pages do not begin at a multiple of the page size.",
        "they cannot map the file and read it slowly, with warnings";
    ExtentOld Note "extent-old": "The size of a CPU's data lacks the 4 bytes of the chunk count, as trace-cmd 3.1 writes it.",
        "none";
    Chunk Error "chunk": "The sizes of a chunk do not fit the data, or not the pages.",
        "trace-cmd crashes (first chunk of a CPU) or ends the CPU's events there, and exits with 0";
    PartPage Error "part-page": "The data of a CPU end within a page.",
        "they show what is there of it";
    PageCommit Error "page-commit": "A page's commit word is impossible.",
        "a length beyond the page makes them give up the whole file";
    PageFlags Warning "page-flags": "A page's commit word has bits that mean nothing.",
        "none that is known";
    EventLength Error "event-length": "An event does not end inside its page's data: what is behind it on the page is lost.",
        "they skip the rest of the page, or show garbage";
    EventEmpty Error "event-empty": "A record is too short for the number of its event.",
        "they read the bytes behind it";
    Time Warning "time": "Time goes backwards within a CPU.",
        "they show it as it is; `report --ts-check` warns";
    MissedMark Warning "missed-mark": "Lost events are marked where readers do not find the mark: the page does not begin with an event.",
        "they do not tell of the loss";
    LossBehind Note "loss-behind": "Events were lost behind the last event of a CPU: a page without events marks them.",
        "they do not tell of the loss";
    UnknownEvent Error "unknown-event": "A record's number is that of no event.",
        "they show it as unknown, or leave it out";
    RecordShort Error "record-short": "A record is shorter than its event's format.",
        "they read the bytes behind it";
    RecordLong Warning "record-long": "A record is longer than its event's format can make it.",
        "none";
    Dynamic Error "dynamic": "A record's dynamic field points outside the record.",
        "they show bytes of other records, or crash";
    Checksum Error "checksum": "Bytes are not those that were written.",
        "they do not know of it, and show what is there";
    ChecksumOption Error "checksum-option": "The checksums are damaged themselves.",
        "they do not know them";
    ChecksumStale Note "checksum-stale": "The checksums were copied from another file, and are not compared.",
        "they do not know them";
    Ledger Error "ledger": "The loss ledger cannot be read.",
        "they do not know it";
    LedgerCount Warning "ledger-count": "The loss ledger counts other events than there are.",
        "they do not know it";
    CutShort Note "cut-short": "The recording did not come to its end: events that were in the recorder's rings are missing.",
        "they show what is there, and do not tell";
    CpuStatCount Note "cpustat-count": "The statistics of a CPU count other events than there are: data are missing, the file is a part of another, or the kernel counted events that it did not keep.",
        "`report --stat` shows the statistics";
    Unreadable Error "unreadable": "The reader cannot open the file, or a part of it.",
        "they do not show it either";
}

impl Rule {
    /// How many rules there are.
    pub const COUNT: usize = Self::ALL.len();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_words_and_distinct() {
        let names: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        assert_eq!(names.len(), Rule::COUNT);
        assert!(names.iter().all(|name| name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-')));
        assert!(Rule::ALL.iter().enumerate().all(|(index, rule)| *rule as usize == index));
        assert!(Rule::ALL.iter().all(|rule| rule.meaning().ends_with('.') && !rule.consequence().is_empty()));
    }
}
