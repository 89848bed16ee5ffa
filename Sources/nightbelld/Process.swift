import Descriptors
import Glibc

/// What the daemon asks of its own process.
enum Process {
    /// Every parked socket costs a descriptor: takes as many as the hard limit allows.
    static func raiseDescriptorLimit() {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    /// How many descriptors this process may have.
    static var descriptorLimit: UInt64 {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 0 }
        return UInt64(limit.rlim_cur)
    }

    /// What `ps` and `top` show; 15 bytes of it.
    static func setName(_ name: String) {
        // The process is named after its first thread; tools that show threads show the names of all.
        for thread in ["self", "thread-self"] { try? SmallFile.write(name, to: "/proc/\(thread)/comm") }
    }

    /// Whoever started us may have closed these; the next files opened must not take their place and be written to
    /// as if they were the log.
    static func openStandardDescriptors() {
        for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO]
        where dup2(descriptor, descriptor) == -1 {
            // The lowest free number is this one: those below it are open by now.
            _ = unsafe open("/dev/null", O_RDWR)
        }
    }

    static func environment() -> [String: String] {
        var result: [String: String] = [:]
        var next = unsafe environ
        while let entry = unsafe next.pointee {
            let text = unsafe String(cString: entry)
            if let equals = text.firstIndex(of: "=") {
                result[String(text[..<equals])] = String(text[text.index(after: equals)...])
            }
            unsafe next += 1
        }
        return result
    }

    /// Gives back the pages of program code that only starting needed: arguments, YAML, the Swift runtime's look
    /// at all types. They are read again from the file if ever needed, so nothing is lost but residence. Only
    /// mappings that are executable and not writable are touched: nothing was written to those.
    static func releaseStartUpCode() {
        guard let file = unsafe fopen("/proc/self/maps", "re") else { return }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 4_352)
        while unsafe fgets(&line, CInt(line.count), file) != nil {
            let text = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            let fields = text.split(whereSeparator: \.isWhitespace)
            guard fields.count >= 6, fields[1] == "r-xp", fields[5].hasPrefix("/") else { continue }
            let bounds = fields[0].split(separator: "-").compactMap { UInt(String($0), radix: 16) }
            guard bounds.count == 2, let start = unsafe UnsafeMutableRawPointer(bitPattern: bounds[0]) else {
                continue
            }
            unsafe madvise(start, Int(bounds[1] - bounds[0]), CInt(MADV_DONTNEED))
        }
    }
}
