import Glibc
import LinuxSystem

/// Reports that a cgroup has been frozen or thawed.
struct FreezerEvents: ~Copyable {
    private let inotify: OwnedDescriptor
    private let file: String

    init(directory: String) throws(SystemError) {
        let file = directory + "/cgroup.events"
        let inotify = OwnedDescriptor(
            adopting: try systemCall("inotify_init1") {
                inotify_init1(CInt(IN_NONBLOCK) | CInt(IN_CLOEXEC))
            })
        let rawValue = inotify.rawValue
        _ = try systemCall("inotify_add_watch") {
            unsafe inotify_add_watch(rawValue, file, UInt32(IN_MODIFY))
        }
        self.inotify = inotify
        self.file = file
    }

    var descriptor: CInt { inotify.rawValue }

    /// - Returns: whether something has changed since the last call.
    func take() -> Bool {
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let rawValue = inotify.rawValue
        var hasChanged = false
        while unsafe read(rawValue, &bytes, bytes.count) > 0 { hasChanged = true }
        return hasChanged
    }

    var isFrozen: Bool { (try? SmallFile.readText(file))?.contains("frozen 1") ?? false }
}
