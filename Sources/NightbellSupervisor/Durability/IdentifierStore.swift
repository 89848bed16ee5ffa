import CLinux
import Glibc
import LinuxSystem

/// The table of identifiers on disk. A thread of its own changes and writes it, and exists only while there
/// is something to write: a disk is slow, and so is a large table. Callers only report changes; the table is
/// not kept in memory in between.
///
/// A failed write, for example on a full disk, is retried: after a second, then with doubling pauses, and at
/// each `flush`.
@safe
package final class IdentifierStore: @unchecked Sendable {
    // Sendable: mutable state is touched only with the lock held, `unwritten` and `hasTable` by the thread while
    // it exists.

    /// Why the table cannot be read.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String
        /// 0 if it was not a system call that failed.
        package let code: Int32
    }

    /// Problems of the files found, for the log.
    package let warnings: [String]
    /// The longest pause between two attempts, in seconds.
    private static let longestPause = 60
    private let file: DurableFile
    private let onChange: @Sendable (Change) -> Void
    /// The thread's, while it exists: changes that it has applied but not written to the disk.
    private var unwritten: [String: IdentifierTable.Entry?] = [:]
    /// The thread's, while it exists: whether there has been a table.
    private var hasTable: Bool

    /// Events of the table while it is in use.
    package enum Change: Sendable, Hashable {
        /// It was found damaged, or not at all.
        case damaged(String)
        /// It cannot be written; reported for the first of a row of attempts.
        case unwritable(String)
        /// It is written again.
        case written
    }

    private let lock = ConditionLock()
    /// Locked: changes that the thread has not taken yet.
    private var pending: [String: IdentifierTable.Entry?] = [:]
    /// Locked: whether there is a thread.
    private var isWriting = false
    /// Locked: whether it is writing, and not waiting for the next attempt.
    private var isAttempting = false
    /// Locked: how many attempts have failed, and up to which count the next ones come without a pause.
    private var failures: UInt64 = 0
    private var hurriesUntil: UInt64 = 0
    /// Locked: failures in a row, which determine the pause.
    private var pauses = 0
    /// Locked: there are no further attempts.
    private var isClosing = false
    /// Locked: why changes are not on the disk.
    private var obstacle: String?
    /// Locked: whether entries were lost and have to be recorded again.
    private var hasLostEntries = false

    /// Reads the table; neither it nor its directory has to exist.
    ///
    /// - Parameter onChange: called on another thread, but never twice at a time.
    package init(
        path: String, onChange: @escaping @Sendable (Change) -> Void
    ) throws(Failure) {
        file = DurableFile(path: path)
        self.onChange = onChange
        do throws(Failure) {
            let found = try Self.read(file)
            warnings = found.warnings
            hasTable = found.hasTable
        } catch {
            guard error.code != 0 else { throw error }
            // There may be space later, or it may be mounted then.
            warnings = ["the table of identifiers cannot be read: \(error.description)"]
            hasTable = false
        }
    }

    deinit {
        lock.lock()
        isClosing = true
        lock.signal()
        while isWriting { lock.wait() }
        lock.unlock()
    }

    /// Why changes may be lost with this process, or earlier ones may be unknown; empty: nothing is wrong.
    package var problems: [String] {
        lock.lock()
        defer { lock.unlock() }
        return warnings + (obstacle.map { ["the table of identifiers cannot be written: \($0)"] } ?? [])
    }

    /// With its parents; a directory that was never used does not exist.
    private static func makeDirectory(_ path: String) throws(SystemError) {
        if unsafe mkdir(path, 0o700) == 0 || errno == EEXIST { return }
        guard errno == ENOENT, let end = path.lastIndex(of: "/"), end > path.startIndex else {
            throw SystemError("mkdir \(path)")
        }
        try makeDirectory(String(path[..<end]))
        if unsafe mkdir(path, 0o700) != 0, errno != EEXIST { throw SystemError("mkdir \(path)") }
    }

    private struct Found {
        var table = IdentifierTable()
        var warnings: [String]
        /// Whether a file had a whole table.
        var hasTable: Bool
    }

    private static func read(_ file: DurableFile) throws(Failure) -> Found {
        var warnings: [String] = []
        do throws(SystemError) {
            let directory = String(file.path[..<(file.path.lastIndex(of: "/") ?? file.path.startIndex)])
            try makeDirectory(directory)
            let candidates = try file.candidates()
            for (path, found) in candidates {
                let bytes: [UInt8]
                switch found {
                case .content(let content): bytes = content
                case .stranger(let what):
                    warnings.append("\(path): \(what)")
                    continue
                }
                do throws(IdentifierTable.Damage) {
                    let table = try IdentifierTable(decoding: bytes)
                    // The next write must not move it to the place of the previous content.
                    if !warnings.isEmpty { setAside(file, &warnings) }
                    return Found(table: table, warnings: warnings, hasTable: true)
                } catch .newer(let version) {
                    let damage = IdentifierTable.Damage.newer(version: version)
                    throw SystemError(code: 0, call: "\(path): \(damage)")
                } catch {
                    warnings.append("\(path): \(error)")
                }
            }
            if !candidates.isEmpty {
                setAside(file, &warnings)
                warnings.append("no identifier is known any more")
            }
            return Found(warnings: warnings, hasTable: false)
        } catch {
            throw Failure(description: error.code == 0 ? error.call : "\(error)", code: error.code)
        }
    }

    /// A file that cannot be moved is overwritten later.
    private static func setAside(_ file: DurableFile, _ warnings: inout [String]) {
        do throws(SystemError) {
            warnings.append("the damaged table is \(try file.setAside()) now")
        } catch {
            warnings.append("the damaged table cannot be renamed: \(error)")
        }
    }

    /// The table on the disk, after all changes that can be written are.
    package func table() throws(Failure) -> IdentifierTable {
        flush()
        return try Self.read(file).table
    }

    /// Whether the table was damaged or removed since the last call: then all entries are to be recorded again.
    package func takeLoss() -> Bool {
        lock.lock()
        defer { lock.unlock() }
        defer { hasLostEntries = false }
        return hasLostEntries
    }

    /// Records changes of some identifiers (nil: the entry is removed), and has them written soon. Takes the
    /// same time for any size of the table.
    package func record(_ changes: some Sequence<(identifier: String, entry: IdentifierTable.Entry?)>) {
        lock.lock()
        defer { lock.unlock() }
        for change in changes { pending.updateValue(change.entry, forKey: change.identifier) }
        guard !isWriting, !pending.isEmpty else { return }
        isWriting = startThread()
        if !isWriting { tellLocked("\(SystemError("pthread_create"))") }
    }

    /// Returns when everything is on the disk, or an attempt from now on has failed.
    package func flush() {
        lock.lock()
        defer { lock.unlock() }
        if !isWriting, !pending.isEmpty { isWriting = startThread() }
        // The current attempt may already have failed.
        let enough = failures + (isAttempting ? 2 : 1)
        hurriesUntil = max(hurriesUntil, enough)
        lock.signal()
        while isWriting, failures < enough { lock.wait() }
    }

    // MARK: The thread

    private func startThread() -> Bool {
        // Not retained: deinitialising the store waits for the thread's end.
        let store = unsafe Unmanaged.passUnretained(self)
        let code = Thread.start(stackSize: Thread.smallStack) {
            unsafe store.takeUnretainedValue().writeAll()
        }
        return code == 0
    }

    private func writeAll() {
        var onDisk: IdentifierTable?
        while takeChanges() {
            do {
                let old = try onDisk ?? readAgain()
                var table = old
                table.change(unwritten)
                if table != old {
                    try file.write(table.encoded)
                    hasTable = true
                }
                onDisk = table
                unwritten = [:]
                succeeded()
            } catch {
                // The file may have changed by then.
                onDisk = nil
                guard waitAfter("\(error)") else { return }
            }
        }
    }

    private func readAgain() throws(Failure) -> IdentifierTable {
        var found = try Self.read(file)
        if hasTable, !found.hasTable, found.warnings.isEmpty {
            found.warnings.append("\(file.path) has been removed")
        }
        hasTable = found.hasTable
        lock.lock()
        defer { lock.unlock() }
        for warning in found.warnings { onChange(.damaged(warning)) }
        if !found.warnings.isEmpty { hasLostEntries = true }
        return found.table
    }

    /// Whether there are changes; otherwise the thread ends.
    private func takeChanges() -> Bool {
        lock.lock()
        defer { lock.unlock() }
        unwritten.merge(pending) { _, later in later }
        pending = [:]
        isAttempting = !unwritten.isEmpty
        if !isAttempting { endThread() }
        return isAttempting
    }

    private func succeeded() {
        lock.lock()
        defer { lock.unlock() }
        isAttempting = false
        if obstacle != nil { onChange(.written) }
        obstacle = nil
        pauses = 0
    }

    /// Waits until the next attempt; false: there is none, and the thread ends.
    private func waitAfter(_ failure: String) -> Bool {
        lock.lock()
        defer { lock.unlock() }
        tellLocked(failure)
        isAttempting = false
        failures += 1
        lock.signal()
        let pause = min(Self.longestPause, 1 << min(pauses, 6))
        let until = RunningClock.instant(after: Int64(pause) * 1_000_000_000)
        pauses += 1
        while !isClosing, failures >= hurriesUntil {
            guard lock.wait(until: until) else { break }
        }
        if isClosing { endThread() }
        return !isClosing
    }

    private func endThread() {
        isWriting = false
        lock.signal()
    }

    private func tellLocked(_ problem: String) {
        if obstacle == nil { onChange(.unwritable(problem)) }
        obstacle = problem
    }
}
