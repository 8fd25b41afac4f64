//! What the writer writes is what the reader reads, whatever is in it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::reader_files::{
    Chance, FORMAT, Kept, backwards, cpu, cpu_forwards, forwards, options, page, start, version_6,
};
use ftrace_event::Endian;
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::{Corrections, Next, Reader, Records, each_record_ahead};
use tracedat::{Buffer, ChunkCompressor, Compression, FileOption, Setup};

/// What a page has no room for is known as lost, but not how much.
fn same(found: &Kept, expected: &Kept) {
    let mut expected = expected.clone();
    if found.missed == Some(0) && expected.missed.is_some() {
        expected.missed = Some(0);
    }
    assert_eq!(*found, expected);
}

#[test]
fn whatever_is_written_is_read() {
    for seed in 0..60 {
        let chance = &mut Chance::new(seed);
        let compression = chance.pick(&[Compression::None, Compression::zstd(1)]);
        let endian = chance.pick(&[Endian::Little, Endian::Big]);
        let setup = Setup { endian, page_size: chance.pick(&[4096, 8192, 65536, 524_288]), compression };
        let mut writer = start(setup);
        for option in options() {
            writer.option(&option).unwrap();
        }
        let mut expected = BTreeMap::new();
        let names = chance.pick(&[&[""][..], &["", "one"], &["one", "", "one"]]);
        let mut written = 0;
        for (buffer, name) in names.iter().enumerate() {
            // Buffers may have pages of their own size.
            let page_size = if name.is_empty() { setup.page_size } else { chance.pick(&[4096, 16384]) };
            let mut out = writer.begin_buffer(Buffer { name, clock: "mono", page_size }).unwrap();
            for number in [0, 1, 7, 300].into_iter().take(chance.below(5) as usize) {
                let (pages, records) = cpu(chance, setup, page_size, buffer, number);
                out.write_cpu(number, pages.as_slice()).unwrap();
                written += pages.len();
                if !records.is_empty() {
                    expected.insert((buffer, number), records);
                }
            }
            out.finish().unwrap();
        }
        let bytes = writer.finish().unwrap().into_inner();

        let reader = Reader::open(bytes.as_slice()).unwrap();
        assert_eq!(reader.problems().len(), 0);
        assert_eq!((reader.header().endian, reader.header().version), (setup.endian, 7));
        let metadata = reader.metadata();
        assert_eq!(metadata.header_event, "the event");
        assert_eq!(metadata.event_id("demo", "x"), Some(9));
        assert_eq!(metadata.event(9).unwrap().format, FORMAT);
        assert_eq!(metadata.cmdlines.get(42), Some(b"two words".as_slice()));
        assert_eq!(metadata.printk.get(&255).map(String::as_str), Some("hi"));
        assert_eq!(reader.kallsyms().unwrap(), b"ff T symbol\n");
        let facts: Vec<_> = reader.facts().cloned().collect();
        assert_eq!(facts[..5], options());
        let mut names_read: Vec<_> = reader.buffers().iter().map(|buffer| buffer.name.as_str()).collect();
        assert_eq!(reader.buffers().iter().filter(|buffer| buffer.name.is_empty()).count(), 1);
        names_read.truncate(names.len());
        assert_eq!(names_read, names);

        let found: BTreeMap<_, _> = (reader.buffers().iter().enumerate())
            .flat_map(|(buffer, info)| info.cpus.iter().map(move |extent| (buffer, extent.cpu)))
            .map(|(buffer, cpu)| ((buffer, cpu), cpu_forwards(&mut reader.cpu_records(buffer, cpu).unwrap())))
            .collect();
        assert!(found.keys().eq(expected.keys()));
        for (place, records) in &expected {
            assert_eq!(found[place].len(), records.len());
            found[place].iter().zip(records).for_each(|(found, expected)| same(found, expected));
        }
        check_merged(chance, &reader, &found);
        let counted: u64 = (0..reader.buffers().len()).map(|buffer| reader.count(buffer).events()).sum();
        assert_eq!(counted, expected.values().map(|records| records.len() as u64).sum::<u64>(), "{written}");
        // A file is read as memory is.
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let file = Reader::open(file).unwrap();
        assert_eq!(forwards(&mut file.records().unwrap()), forwards(&mut reader.records().unwrap()));
    }
}

/// Merged records are those of the CPUs, sorted; backwards and from any time on.
fn check_merged(chance: &mut Chance, reader: &Reader<&[u8]>, cpus: &BTreeMap<(usize, u32), Vec<Kept>>) {
    let mut sorted: Vec<_> = cpus.values().flatten().cloned().collect();
    sorted.sort_by_key(|record| record.timestamp);
    let mut records = reader.records().unwrap();
    assert_eq!(forwards(&mut records), sorted);
    assert!(records.next_record().unwrap().is_none());
    let mut back = backwards(&mut records);
    // Streams that have records of one time come in the other order, too.
    let by = |record: &Kept| (record.timestamp, record.buffer, record.cpu);
    assert!(back.is_sorted_by_key(by));
    back.sort_by_key(|record| record.timestamp);
    assert_eq!(back, sorted);
    for _ in 0..20 {
        let near = sorted.get(chance.below(sorted.len().max(1) as u64) as usize);
        let time =
            near.map_or(0, |record| record.timestamp).saturating_add(chance.below(3)).saturating_sub(1);
        let split = sorted.partition_point(|record| record.timestamp < time);
        records.seek(time);
        // A few steps to and fro end where they began.
        for _ in 0..chance.below(4) {
            let steps = chance.below(6).min((sorted.len() - split) as u64);
            (0..steps).for_each(|_| assert!(records.next_record().unwrap().is_some()));
            (0..steps).for_each(|_| assert!(records.prev_record().unwrap().is_some()));
        }
        let next = records.next_record().unwrap().map(Kept::from);
        assert_eq!(next.as_ref(), sorted.get(split));
        if next.is_some() {
            assert_eq!(records.prev_record().unwrap().map(Kept::from), next);
        }
        let before = records.prev_record().unwrap().map(|record| record.timestamp);
        assert_eq!(before, split.checked_sub(1).map(|last| sorted[last].timestamp));
    }
    check_ahead(chance, &mut records, &sorted);
    records.rewind();
    assert!(records.prev_record().unwrap().is_none());
    records.fast_forward();
    assert!(records.next_record().unwrap().is_none());
    assert_eq!(backwards(&mut records).len(), sorted.len());
}

/// Records are read ahead from any position on, as many as are taken, with the bytes that are kept.
fn check_ahead(chance: &mut Chance, records: &mut Records<'_>, sorted: &[Kept]) {
    let time = sorted.get(sorted.len() / 2).map_or(0, |record| record.timestamp);
    records.seek(time);
    let rest = &sorted[sorted.partition_point(|record| record.timestamp < time)..];
    let most = chance.below(rest.len() as u64 + 2) as usize;
    let mut ahead = Vec::new();
    each_record_ahead(
        records,
        |record| if record.cpu % 2 == 0 { record.data.len() + 1 } else { 2 },
        |next| {
            if ahead.len() == most {
                return ControlFlow::Break(());
            }
            match next {
                Next::Record(record) => ahead.push(Kept::from(record)),
                Next::Gap(_) | Next::End(_) => {}
                Next::Damage(error) => panic!("{error}"),
            }
            ControlFlow::Continue(())
        },
    );
    assert_eq!(ahead.len(), most.min(rest.len()));
    for (ahead, record) in ahead.iter().zip(rest) {
        let kept = if record.cpu % 2 == 0 { record.data.len() } else { record.data.len().min(2) };
        assert_eq!(ahead, &Kept { data: record.data[..kept].to_vec(), ..record.clone() });
    }
}

#[test]
fn version_6_in_both_orders_and_with_both_longs() {
    for (endian, long) in [(Endian::Little, 8), (Endian::Little, 4), (Endian::Big, 8), (Endian::Big, 4)] {
        let cpus = [
            [page(endian, long, 100, None, &[(0, 9), (5, 10)]), page(endian, long, 200, Some(7), &[(1, 11)])]
                .concat(),
            Vec::new(),
            [page(endian, long, 150, Some(3), &[]), page(endian, long, 160, None, &[(0, 12)])].concat(),
        ];
        let bytes = version_6(endian, long, &[("demo", &[FORMAT])], &cpus);
        let mut reader = Reader::open(bytes).unwrap();
        assert_eq!(reader.header().version, 6);
        assert_eq!(reader.layout().long_size, long);
        assert_eq!(reader.buffers().len(), 1);
        assert_eq!(reader.metadata().event_id("demo", "x"), Some(9));
        assert_eq!(reader.kallsyms().unwrap(), b"ffffffff81000000 T first\n");
        assert_eq!(reader.metadata().cmdlines.get(42), Some(b"worker".as_slice()));
        assert!(reader.facts().any(|fact| *fact == FileOption::Offset { nanos: 1000 }));
        let times = |reader: &Reader<Vec<u8>>| {
            let records = forwards(&mut reader.records().unwrap());
            let value = |data: &[u8]| endian.read_u32(data.try_into().unwrap());
            records.iter().map(|r| (r.timestamp, r.cpu, value(&r.data), r.missed)).collect::<Vec<_>>()
        };
        let expected = [
            (1100, 0, 9, None),
            (1105, 0, 10, None),
            // The loss before an empty page is one before the next record.
            (1160, 2, 12, Some(3)),
            (1201, 0, 11, Some(7)),
        ];
        assert_eq!(times(&reader), expected);
        reader.set_corrections(Corrections::NONE);
        assert_eq!(
            times(&reader),
            expected.map(|(time, cpu, value, missed)| (time - 1000, cpu, value, missed))
        );
    }
}

#[test]
fn files_of_several_machines_merge_by_time() {
    let file = |offset: i64, times: &[u64]| {
        let mut writer = start(Setup::default());
        writer.option(&FileOption::Offset { nanos: offset }).unwrap();
        let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
        for time in times {
            assert_eq!(builder.push(*time, &[9, 0, 0, 0]), Ok(Push::Stored));
        }
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        top.write_cpu(0, builder.finish().unwrap()).unwrap();
        top.finish().unwrap();
        Reader::open(writer.finish().unwrap().into_inner()).unwrap()
    };
    let readers = [file(1000, &[1, 5, 9]), file(-100, &[1103, 1106])];
    let mut records = Reader::merge(&readers).unwrap();
    let mut found = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        found.push((record.reader, record.timestamp));
    }
    assert_eq!(found, [(0, 1001), (1, 1003), (0, 1005), (1, 1006), (0, 1009)]);
}

#[test]
fn cpus_are_read_on_threads() {
    let setup = Setup::default();
    let chance = &mut Chance::new(9);
    let mut writer = start(setup);
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    let cpus: Vec<_> = (0..4).map(|number| cpu(chance, setup, 4096, 0, number)).collect();
    for (number, (pages, _)) in cpus.iter().enumerate() {
        top.write_cpu(number as u32, pages.as_slice()).unwrap();
    }
    top.finish().unwrap();
    let reader = Reader::open(writer.finish().unwrap().into_inner()).unwrap();
    std::thread::scope(|scope| {
        for (extent, expected) in
            reader.buffers()[0].cpus.iter().zip(cpus.iter().filter(|cpu| !cpu.1.is_empty()))
        {
            let mut records = reader.cpu_records(0, extent.cpu).unwrap();
            scope.spawn(move || assert_eq!(cpu_forwards(&mut records).len(), expected.1.len()));
        }
    });
}

#[test]
fn damage_ends_a_page_and_not_the_file() {
    let mut writer = start(Setup { compression: Compression::None, ..Setup::default() });
    let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
    let mut pages = Vec::new();
    for time in 0..2000 {
        while builder.push(time, &[9, 0, 0, 0]).unwrap() == Push::Full {
            pages.extend_from_slice(builder.finish().unwrap());
        }
    }
    pages.extend_from_slice(builder.finish().unwrap());
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(0, pages.as_slice()).unwrap();
    top.finish().unwrap();
    let mut bytes = writer.finish().unwrap().into_inner();
    let whole = Reader::open(bytes.as_slice()).unwrap();
    let at = whole.buffers()[0].cpus[0].offset as usize;
    let per_page = (4096 - 16) / 8;
    // The second page is longer than a page; on the third, the eleventh event is.
    bytes[at + 4096 + 8..][..4].copy_from_slice(&5000u32.to_le_bytes());
    bytes[at + 2 * 4096 + 16 + 80..][..8].copy_from_slice(&[0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let mut records = reader.records().unwrap();
    let (mut times, mut errors) = (Vec::new(), Vec::new());
    loop {
        match records.next_record() {
            Ok(Some(record)) => times.push(record.timestamp),
            Ok(None) => break,
            Err(error) => errors.push(error.to_string()),
        }
    }
    let expected: Vec<_> =
        (0..per_page).chain(2 * per_page..2 * per_page + 10).chain(3 * per_page..2000).collect();
    assert_eq!(times, expected);
    let place = at + 4096;
    assert!(
        errors[0].starts_with(&format!("page 1 of CPU 0, in the data at byte {place}: 5000 bytes")),
        "{errors:?}"
    );
    assert!(errors[1].contains("page 2 of CPU 0") && errors[1].contains("byte 80"), "{errors:?}");
    assert_eq!(errors.len(), 2);
    // Times on the damaged pages lead to the next that can be read.
    for (time, next) in
        [(0, 0), (5, 5), (per_page, 2 * per_page), (2 * per_page + 10, 3 * per_page), (1999, 1999)]
    {
        records.seek(time);
        let found =
            std::iter::repeat_with(|| records.next_record().map(|record| record.map(|r| r.timestamp)));
        assert_eq!(found.take(3).find_map(Result::ok).unwrap(), Some(next), "{time}");
    }
    records.seek(2000);
    assert!(records.next_record().unwrap().is_none());
    let counts = reader.count(0);
    assert_eq!((counts.events(), counts.cpus[0].damaged), (expected.len() as u64, 2));
    assert_eq!(counts.damage, errors);
}

#[test]
fn chunks_of_recorders_that_leave_their_count_out_of_the_size() {
    let setup = Setup::default();
    let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
    assert_eq!(builder.push(1, &[9, 0, 0, 0]), Ok(Push::Stored));
    let page = builder.finish().unwrap().to_vec();
    let mut compressor = ChunkCompressor::new(setup.compression, setup.endian).unwrap();
    let chunk = compressor.compress(&page).unwrap().to_vec();
    let mut writer = start(setup);
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(0, page.as_slice()).unwrap();
    top.finish().unwrap();
    let mut bytes = writer.finish().unwrap().into_inner();
    let size = chunk.len() as u64 + 4;
    let extent = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[0];
    assert_eq!(extent.size, size);
    let place = [extent.offset.to_le_bytes(), size.to_le_bytes()].concat();
    let at = bytes.windows(16).position(|window| window == place).unwrap();
    bytes[at + 8..at + 16].copy_from_slice(&(size - 4).to_le_bytes());
    let reader = Reader::open(bytes.as_slice()).unwrap();
    assert_eq!(forwards(&mut reader.records().unwrap()).len(), 1);
}
