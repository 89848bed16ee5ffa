import LinuxSystem

/// The memory that programs can have without others losing theirs.
package enum AvailableMemory {
    /// The machine's memory is not short while one in so many bytes of it is available.
    private static let share = 5

    /// Whether the machine has little left; true if the kernel does not tell.
    ///
    /// - Parameter path: the kernel's file, or a test's.
    package static func isLow(path: String = "/proc/meminfo") -> Bool {
        guard let text = try? SmallFile.readText(path), let total = figure("MemTotal:", in: text),
            let available = figure("MemAvailable:", in: text)
        else { return true }
        return available < total / share
    }

    /// In KiB.
    private static func figure(_ name: String, in text: String) -> Int? {
        let line = text.split(separator: "\n").first { $0.hasPrefix(name) }
        return line?.split(separator: " ").dropFirst().first.flatMap { Int($0) }
    }
}
