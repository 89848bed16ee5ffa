import Glibc
import LinuxSystem

/// Settings of the daemon's own process.
enum Process {
    /// Raises the descriptor limit to the hard limit: every parked socket costs a descriptor.
    static func raiseDescriptorLimit() {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    /// Has the kernel make its table of this process's descriptors large. Call it before the first thread: in a process with
    /// threads each doubling waits for an RCU grace period of ten milliseconds and more, in which nothing is served.
    static func growDescriptorTable() {
        let last = fcntl(
            STDERR_FILENO, F_DUPFD_CLOEXEC, CInt(min(descriptorLimit, leastTableSize)) - 1)
        if last >= 0 { close(last) }
    }

    /// Takes half a megabyte of the kernel's memory. Beyond it, doublings are rare.
    private static let leastTableSize: UInt64 = 65_536

    /// The limit of descriptors of this process.
    static var descriptorLimit: UInt64 {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 0 }
        return UInt64(limit.rlim_cur)
    }

    /// The name that `ps` and `top` show; 15 bytes of it.
    static func setName(_ name: String) {
        // The process is named after its first thread; tools that show threads show the names of all.
        for thread in ["self", "thread-self"] { try? SmallFile.write(name, to: "/proc/\(thread)/comm") }
    }

    /// Opens closed standard descriptors. The parent may have closed them; the next files opened must not
    /// take their numbers and receive log lines.
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

    /// Releases the pages of program code that only start-up needed: arguments, YAML, the Swift runtime's
    /// scan of all types. They are read again from the file if needed, so only residence is lost. Only
    /// mappings that are executable and not writable are released: nothing was written to them.
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
