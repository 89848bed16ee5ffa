import CLinux
import Descriptors
import Glibc

/// The table of identifiers on disk. It is changed and written by a thread of its own, which exists only while there is
/// something to write: a disk takes its time, and so does a large table. Whoever changes it only says what has changed.
/// Nobody keeps it in memory in between.
@safe
package final class IdentifierStore: @unchecked Sendable {
    // Sendable: what may change is touched with the lock held only, and `unwritten` by the thread while there is one.

    /// Why the table cannot be had.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String
        /// 0 if it was not the system that refused.
        package let code: Int32
    }

    /// What was odd about what was found, for the log.
    package let warnings: [String]
    private let file: DurableFile
    private let onProblem: @Sendable (String) -> Void
    /// The thread's, while there is one: what it has come to, and has not brought to the disk.
    private var unwritten: [String: IdentifierTable.Entry?] = [:]

    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    /// Locked: what has changed since, and became of it.
    private var pending: [String: IdentifierTable.Entry?] = [:]
    /// Locked: whether there is a thread.
    private var isWriting = false

    /// Reads the table; there need not be one yet, nor a directory.
    ///
    /// - Parameter onProblem: called when the table cannot be written, or has been damaged since; on another thread, but
    ///   never twice at a time.
    package init(
        path: String, onProblem: @escaping @Sendable (String) -> Void
    ) throws(Failure) {
        file = DurableFile(path: path)
        self.onProblem = onProblem
        (_, warnings) = try Self.read(file)
        unsafe mutex = .allocate(capacity: 1)
        unsafe condition = .allocate(capacity: 1)
        unsafe pthread_mutex_init(mutex, nil)
        unsafe pthread_cond_init(condition, nil)
    }

    deinit {
        flush()
        unsafe pthread_cond_destroy(condition)
        unsafe pthread_mutex_destroy(mutex)
        unsafe condition.deallocate()
        unsafe mutex.deallocate()
    }

    /// With those that it lies in: who never kept anything has none of them.
    private static func makeDirectory(_ path: String) throws(SystemError) {
        if unsafe mkdir(path, 0o700) == 0 || errno == EEXIST { return }
        guard errno == ENOENT, let end = path.lastIndex(of: "/"), end > path.startIndex else {
            throw SystemError("mkdir \(path)")
        }
        try makeDirectory(String(path[..<end]))
        if unsafe mkdir(path, 0o700) != 0, errno != EEXIST { throw SystemError("mkdir \(path)") }
    }

    private static func read(_ file: DurableFile) throws(Failure) -> (IdentifierTable, [String]) {
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
                    // It must not take the place of the one before when the next is written.
                    if !warnings.isEmpty { setAside(file, &warnings) }
                    return (table, warnings)
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
            return (IdentifierTable(), warnings)
        } catch {
            throw Failure(description: error.code == 0 ? error.call : "\(error)", code: error.code)
        }
    }

    /// What cannot be moved is overwritten one day.
    private static func setAside(_ file: DurableFile, _ warnings: inout [String]) {
        do throws(SystemError) {
            warnings.append("the damaged table is \(try file.setAside()) now")
        } catch {
            warnings.append("the damaged table cannot be put aside: \(error)")
        }
    }

    /// What is on the disk, as soon as everything is there that can be.
    package func table() throws(Failure) -> IdentifierTable {
        flush()
        return try Self.read(file).0
    }

    /// Notes what becomes of some identifiers (nil: nothing is known of them any more), and has it written soon. Takes
    /// the same time whatever the table's size.
    package func note(_ changes: some Sequence<(identifier: String, entry: IdentifierTable.Entry?)>) {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        for change in changes { pending.updateValue(change.entry, forKey: change.identifier) }
        guard !isWriting, !pending.isEmpty else { return }
        isWriting = startThread()
        if !isWriting { onProblem("\(SystemError("pthread_create"))") }
    }

    /// Returns when everything is on the disk, or could not be written.
    package func flush() {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        while isWriting { unsafe pthread_cond_wait(condition, mutex) }
    }

    // MARK: The thread

    private func startThread() -> Bool {
        var attributes = pthread_attr_t()
        unsafe pthread_attr_init(&attributes)
        unsafe pthread_attr_setdetachstate(&attributes, CInt(PTHREAD_CREATE_DETACHED))
        unsafe pthread_attr_setstacksize(&attributes, 256 * 1_024)
        defer { unsafe pthread_attr_destroy(&attributes) }
        var thread = pthread_t()
        // Not retained: the store's end waits for the thread's.
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        let code = unsafe pthread_create(
            &thread, &attributes,
            { context in
                guard let context = unsafe context else { return nil }
                unsafe Unmanaged<IdentifierStore>.fromOpaque(context).takeUnretainedValue().writeAll()
                return nil
            }, context)
        return code == 0
    }

    private func writeAll() {
        var onDisk: IdentifierTable?
        while takeChanges() {
            do {
                let old = try onDisk ?? readAgain()
                var table = old
                table.change(unwritten)
                if table != old { try file.write(table.encoded) }
                onDisk = table
                unwritten = [:]
            } catch {
                tell("\(error)")
            }
        }
    }

    private func readAgain() throws(Failure) -> IdentifierTable {
        let (table, warnings) = try Self.read(file)
        for warning in warnings { tell(warning) }
        return table
    }

    /// Whether there are any; otherwise the thread ends.
    private func takeChanges() -> Bool {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        guard !pending.isEmpty else {
            isWriting = false
            unsafe pthread_cond_broadcast(condition)
            return false
        }
        unwritten.merge(pending) { _, later in later }
        pending = [:]
        return true
    }

    private func tell(_ problem: String) {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        onProblem(problem)
    }
}
