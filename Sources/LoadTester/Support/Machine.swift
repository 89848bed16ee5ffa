import Glibc
import LinuxSystem
import Presentation

/// The machine of a run, its load, and what a hypervisor took of it: figures mean nothing without them.
///
/// A virtual processor that does not run because its host runs another adds pauses of tens of milliseconds to
/// any latency, which no program on it can avoid; a run of which much was stolen is repeated.
struct Machine {
    let kernel: String
    let processors: Int
    let processor: String
    let memoryMebibytes: Int
    let began: Date
    let loadBefore: Double
    private(set) var loadAfter = 0.0
    private(set) var seconds = 0.0
    /// The share of the processor time wanted during the run that the hypervisor did not give, in percent
    /// (`steal` of proc_stat(5)).
    private(set) var stolenPercent = 0.0
    private let start = monotonicNow()
    private let timesBefore = ProcessorTimes()

    /// A day and a time in UTC, such as `2026-03-01 14:05`.
    struct Date: CustomStringConvertible {
        let description: String

        init() {
            var now = time(nil)
            var parts = tm()
            gmtime_r(&now, &parts)
            func digits(_ number: CInt) -> String { number < 10 ? "0\(number)" : "\(number)" }
            description =
                "\(parts.tm_year + 1_900)-\(digits(parts.tm_mon + 1))-\(digits(parts.tm_mday)) "
                + "\(digits(parts.tm_hour)):\(digits(parts.tm_min))"
        }
    }

    init() {
        var names = utsname()
        uname(&names)
        kernel = withUnsafeBytes(of: &names.release) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        processors = sysconf(CInt(_SC_NPROCESSORS_ONLN))
        processor = Self.value(of: "model name", in: "/proc/cpuinfo")
        memoryMebibytes = sysconf(CInt(_SC_PHYS_PAGES)) * sysconf(CInt(_SC_PAGESIZE)) / 1_048_576
        began = Date()
        loadBefore = Self.load
    }

    mutating func finish() {
        loadAfter = Self.load
        seconds = Double(monotonicNow() - start) / 1e9
        let times = ProcessorTimes()
        let stolen = times.stolen - timesBefore.stolen
        let wanted = times.busy - timesBefore.busy + stolen
        stolenPercent = wanted > 0 ? 100 * Double(stolen) / Double(wanted) : 0
    }

    /// Times of all processors since the machine's start, in clock ticks.
    private struct ProcessorTimes {
        private(set) var busy = 0
        private(set) var stolen = 0

        init() {
            // cpu user nice system idle iowait irq softirq steal guest guest_nice
            let fields = Machine.words(of: "/proc/stat").prefix(9).compactMap { Int($0) }
            guard fields.count == 8 else { return }
            busy = fields[0] + fields[1] + fields[2] + fields[5] + fields[6]
            stolen = fields[7]
        }
    }

    private static var load: Double {
        words(of: "/proc/loadavg").first.flatMap { Double($0) } ?? 0
    }

    private static func words(of path: String) -> [Substring] {
        ((try? SmallFile.readText(path)) ?? "").split { $0 == " " || $0 == "\n" }
    }

    private static func value(of key: String, in path: String) -> String {
        let text = (try? SmallFile.readText(path)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix(key) }
        guard let line, let colon = line.firstIndex(of: ":") else { return "" }
        return String(line[line.index(after: colon)...].drop { $0 == " " })
    }

    var json: JSON {
        [
            "date": .string(began.description), "kernel": .string(kernel), "processor": .string(processor),
            "processors": .integer(Int64(processors)), "memory_mib": .integer(Int64(memoryMebibytes)),
            "load_before": .number(loadBefore), "load_after": .number(loadAfter),
            "seconds": .rounded(seconds, digits: 1), "stolen_percent": .rounded(stolenPercent, digits: 1),
        ]
    }

    var line: String {
        "\(began) UTC, Linux \(kernel), \(processors) × \(processor), \(memoryMebibytes / 1_024) GiB, "
            + "load \(loadBefore) → \(loadAfter), \(figure(seconds, digits: 1)) s, "
            + "\(figure(stolenPercent, digits: 1)) % stolen"
    }
}
