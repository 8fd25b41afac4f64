//! Files of what sinks were given, read back by the reader.

use std::io::Cursor;

use super::super::read_back::lines;
use super::super::{At, Common, EventSpec, FieldSpec, FieldType, ImportError, Integer, Value};
use super::*;
use stdx::output::Directory;
use tracedat::reader::Reader;

const READY: &str = "name: ready\nID: 1024\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned long addr;\toffset:8;\tsize:8;\tsigned:0;\n\n\
    print fmt: \"addr=%lx\", REC->addr\n";

fn spec(name: &str, size: u8) -> EventSpec {
    let kind = FieldType::Integer(Integer::new(size, false));
    let fields = vec![FieldSpec { name: "n".to_owned(), kind }];
    EventSpec { system: "made".to_owned(), name: name.to_owned(), fields, print_fmt: None }
}

/// The file of what `give` gives.
fn made(
    endian: Endian,
    give: impl FnOnce(&mut Sink<'_>) -> Result<(), ImportError>,
) -> (Reader<Vec<u8>>, Imported) {
    let temp = tempfile::tempdir().unwrap();
    let mut watch = |_| true;
    let mut sink = Sink::new("test", endian, Directory::open(temp.path()).unwrap(), &mut watch);
    give(&mut sink).unwrap();
    let (out, imported) = write(sink, true, Cursor::new(Vec::new())).unwrap();
    (Reader::open(out.into_inner()).unwrap(), imported)
}

#[test]
fn records_of_all_kinds_come_back_in_order() {
    for endian in [Endian::Little, Endian::Big] {
        let (reader, imported) = made(endian, |sink| {
            let at = |cpu, time| At { buffer: BufferId::TOP, cpu, time };
            let common = Common { pid: 7, ..Common::default() };
            let own = sink.event(&spec("own", 4))?;
            assert_eq!(sink.event(&spec("own", 4))?, own);
            let other = sink.event(&spec("own", 8))?;
            let ready = sink.event_with_format("ready", READY)?;
            assert_eq!(sink.event_with_format("ready", READY)?, ready);
            let side = sink.buffer("side");
            sink.values(at(1, 30), own, common, &[Value::Unsigned(3)])?;
            sink.values(at(1, 10), other, common, &[Value::Unsigned(1)])?;
            sink.lost(at(1, 20), Some(5))?;
            let mut record = vec![0xff, 0xff, 0, 0, 0, 0, 0, 0];
            record.extend(endian.u64(0xabcd));
            sink.record(at(1, 20), ready, &record)?;
            sink.values(At { buffer: side, cpu: 0, time: 15 }, own, common, &[Value::Unsigned(2)])?;
            sink.lost(at(0, 40), None)?;
            sink.lost_sometime(BufferId::TOP, 0, Some(9));
            sink.record(at(70_000, 1), ready, &record)?;
            sink.task(7, b"worker");
            sink.facts.clock = "mono".to_owned();
            sink.facts.wall_offset = Some(1000);
            sink.facts.cpu_count = Some(4);
            sink.facts.uname = Uname::parse("Linux host 6.1 x86_64");
            Ok(())
        });
        assert_eq!(
            lines(&reader),
            [
                "0 1 1010 made:own_2 n=1",
                "1 0 1015 made:own n=2",
                "0 1 1020 ready:ready addr=abcd after 5 lost",
                "0 1 1030 made:own n=3"
            ]
        );
        assert_eq!((imported.events, imported.kinds), (4, 3));
        assert_eq!((imported.lost, imported.lost_unknown), (14, true));
        assert_eq!(imported.span, Some((10, 30)));
        let not_carried: Vec<_> = imported.not_carried.iter().collect();
        assert_eq!(not_carried, [("records and losses of CPUs with numbers above 65535", 1)]);
        assert_eq!(reader.metadata().cmdlines.get(7), Some(b"worker".as_slice()));
        assert_eq!(reader.cpu_count(), 4);
        assert_eq!(reader.metadata().event_id("ready", "ready"), Some(1024));
        let uname = Uname::of(reader.facts()).unwrap();
        assert_eq!((uname.node.as_str(), uname.release.as_str()), ("host", "6.1"));
        assert!(reader.problems().is_empty(), "{:?}", reader.problems());
    }
}

#[test]
fn pages_are_as_large_as_the_longest_record_needs() {
    let (reader, imported) = made(Endian::Little, |sink| {
        let kind = FieldType::Text;
        let fields = vec![FieldSpec { name: "text".to_owned(), kind }];
        let event = EventSpec { system: "s".to_owned(), name: "e".to_owned(), fields, print_fmt: None };
        let event = sink.event(&event)?;
        for (time, len) in [(1, 10), (2, 9000), (3, 100_000)] {
            let text = vec![b'x'; len];
            let at = At { buffer: BufferId::TOP, cpu: 0, time };
            sink.values(at, event, Common::default(), &[Value::Text(&text)])?;
        }
        let too_long = vec![0; 2 << 20];
        sink.record(At { buffer: BufferId::TOP, cpu: 0, time: 4 }, event, &too_long)
    });
    assert_eq!(reader.layout().page_size, 128 << 10);
    assert_eq!(imported.events, 3);
    assert_eq!(imported.not_carried.iter().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn records_of_32_bit_kernels() {
    let text = READY.replace("offset:8;\tsize:8", "offset:8;\tsize:4");
    let (reader, _) = made(Endian::Big, |sink| {
        sink.facts.long_size = 4;
        let event = sink.event_with_format("ready", &text)?;
        sink.lost(At { buffer: BufferId::TOP, cpu: 0, time: 1 }, Some(3))?;
        let record = [0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78];
        sink.record(At { buffer: BufferId::TOP, cpu: 0, time: 2 }, event, &record)
    });
    assert_eq!(reader.layout().long_size, 4);
    assert_eq!(lines(&reader), ["0 0 2 ready:ready addr=12345678 after 3 lost"]);
}
