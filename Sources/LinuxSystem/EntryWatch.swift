import CLinux
import Glibc

/// A descriptor that is readable once an entry of a directory was made, replaced, removed or written.
///
/// The directory is watched and not the file, which other programs replace by renaming.
package struct EntryWatch: ~Copyable, Sendable {
    private let inotify: OwnedDescriptor
    private let name: [UInt8]

    private static let mask = UInt32(
        IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE | IN_ONLYDIR)

    /// - Parameter path: an absolute one. Nothing needs to be there, but its directory.
    package init(path: String) throws(SystemError) {
        guard let slash = path.lastIndex(of: "/") else {
            throw SystemError(code: EINVAL, call: "watch \(path)")
        }
        let directory = slash == path.startIndex ? "/" : String(path[..<slash])
        let inotify = OwnedDescriptor(
            adopting: try systemCall("inotify_init1") {
                inotify_init1(CInt(IN_NONBLOCK) | CInt(IN_CLOEXEC))
            })
        let rawValue = inotify.rawValue
        _ = try systemCall("inotify_add_watch \(directory)") {
            unsafe inotify_add_watch(rawValue, directory, Self.mask)
        }
        self.inotify = inotify
        name = Array(path[path.index(after: slash)...].utf8)
    }

    package var rawValue: CInt { inotify.rawValue }

    /// Makes it unreadable again.
    ///
    /// - Returns: whether the entry may have changed since the last call.
    package borrowing func takeChange() throws(SystemError) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let rawValue = inotify.rawValue
        var isChanged = false
        while true {
            let count = try nonblockingSystemCall("read") { unsafe read(rawValue, &buffer, buffer.count) }
            guard let count, count > 0 else { return isChanged }
            if Self.contains(name, buffer[..<count]) { isChanged = true }
        }
    }

    /// Whether one of the events is about this name, or about no name: some were lost, or the directory is gone.
    private static func contains(_ name: [UInt8], _ events: ArraySlice<UInt8>) -> Bool {
        let header = MemoryLayout<inotify_event>.size
        var rest = events
        while rest.count >= header {
            // The last field of the header, four bytes.
            let length = rest.dropFirst(header - 4).prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
            let text = rest.dropFirst(header).prefix(length).prefix { $0 != 0 }
            if length == 0 || text.elementsEqual(name) { return true }
            rest = rest.dropFirst(header + length)
        }
        return false
    }
}
