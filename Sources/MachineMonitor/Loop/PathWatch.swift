package import EventHandlers
import EventLoop
import Glibc
import LinuxSystem

/// Tells when one of these paths may have appeared or gone, by inotify(7) on the nearest directories that
/// exist.
package final class PathWatch {
    private let paths: [String]
    private let handler: () -> Void
    private var descriptor: OwnedDescriptor?
    private var watch: DescriptorWatch?
    private var pause: LoopTimer?
    private var buffer = [UInt8](repeating: 0, count: 4_096)
    /// The watched directories, by the kernel's number.
    private var directories: [CInt: String] = [:]

    /// In milliseconds. Until then nothing is read: the kernel merges events and discards those beyond its
    /// limit, so that a busy directory costs no more than a quiet one.
    private static let pauseLength: Int64 = 50
    /// The rest is read after another pause.
    private static let readsAtOnce = 64

    private static let mask: UInt32 = {
        let events = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF
        return UInt32(events | IN_ATTRIB | IN_ONLYDIR)
    }()

    package init(_ loop: HandlerLoop, _ paths: [String], _ handler: @escaping () -> Void) {
        self.paths = paths
        self.handler = handler
        pause = LoopTimer(loop) { [unowned self] in receive() }
        do {
            let opened = OwnedDescriptor(
                adopting: try systemCall("inotify_init1") {
                    inotify_init1(CInt(IN_CLOEXEC | IN_NONBLOCK))
                })
            watch = try DescriptorWatch(loop, opened.rawValue, .read) { [unowned self] _ in wait() }
            descriptor = consume opened
            watchDirectories()
        } catch {
            // Without it, the path is looked at when something else tells of a change.
        }
    }

    deinit { watch = nil }

    private func watchDirectories() {
        guard let rawValue = descriptor?.rawValue else { return }
        var found: [CInt: String] = [:]
        for directory in Set(paths.map(Self.nearestDirectory)) {
            let number = unsafe inotify_add_watch(rawValue, directory, Self.mask)
            if number >= 0 { found[number] = directory }
        }
        for number in directories.keys where found[number] == nil { _ = inotify_rm_watch(rawValue, number) }
        directories = found
    }

    /// The directory that the path is in or, if that does not exist, the nearest one above it.
    private static func nearestDirectory(_ path: String) -> String {
        var rest = path[...]
        while let slash = rest.lastIndex(of: "/"), slash > rest.startIndex {
            rest = rest[..<slash]
            if unsafe access(String(rest), F_OK) == 0 { return String(rest) }
        }
        return "/"
    }

    /// Something has happened: wait for the rest of it.
    private func wait() {
        try? watch?.setArmed(false)
        pause?.set(milliseconds: Self.pauseLength)
    }

    private func receive() {
        guard let rawValue = descriptor?.rawValue else { return }
        // The paths themselves tell what has happened.
        for _ in 0..<Self.readsAtOnce {
            guard unsafe read(rawValue, &buffer, buffer.count) > 0 else { break }
        }
        watchDirectories()
        try? watch?.setArmed(true)
        handler()
    }
}
