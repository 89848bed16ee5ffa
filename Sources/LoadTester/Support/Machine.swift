import Descriptors
import Glibc
import Presentation

/// The machine of a run, and its load: figures mean nothing without them.
struct Machine {
    let kernel: String
    let processors: Int
    let processor: String
    let memoryMebibytes: Int
    let began: Date
    let loadBefore: Double
    private(set) var loadAfter = 0.0
    private(set) var seconds = 0.0
    private let start = monotonicNow()

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
    }

    private static var load: Double {
        let text = (try? SmallFile.readText("/proc/loadavg")) ?? ""
        return text.split(separator: " ").first.flatMap { Double($0) } ?? 0
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
            "seconds": .rounded(seconds, digits: 1),
        ]
    }

    var line: String {
        "\(began) UTC, Linux \(kernel), \(processors) × \(processor), \(memoryMebibytes / 1_024) GiB, "
            + "load \(loadBefore) → \(loadAfter), \(figure(seconds, digits: 1)) s"
    }
}
