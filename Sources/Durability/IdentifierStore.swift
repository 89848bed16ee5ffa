import CLinux
package import Descriptors
import Glibc

/// The table of identifiers on disk. It is written by a thread of its own, which exists only while there is something
/// to write: a disk takes its time.
@safe
package final class IdentifierStore: @unchecked Sendable {
    // Sendable: what may change is touched with the lock held only, and `table` by its one owner.

    /// Why the table cannot be had.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String
        /// 0 if it was not the system that refused.
        package let code: Int32
    }

    package private(set) var table: IdentifierTable
    /// What was odd about what was found, for the log.
    package let warnings: [String]
    private let file: DurableFile
    private let onFailure: @Sendable (SystemError) -> Void

    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    /// Locked: what is to be written next.
    private var pending: [UInt8]?
    /// Locked: whether there is a thread.
    private var isWriting = false

    /// Reads the table; there need not be one yet, nor a directory.
    ///
    /// - Parameter onFailure: called on another thread when the table cannot be written.
    package init(
        path: String, onFailure: @escaping @Sendable (SystemError) -> Void
    ) throws(Failure) {
        file = DurableFile(path: path)
        self.onFailure = onFailure
        (table, warnings) = try Self.read(file)
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
            for (path, bytes) in candidates {
                do throws(IdentifierTable.Damage) {
                    return (try IdentifierTable(decoding: bytes), warnings)
                } catch .newer(let version) {
                    let damage = IdentifierTable.Damage.newer(version: version)
                    throw SystemError(code: 0, call: "\(path): \(damage)")
                } catch {
                    warnings.append("\(path): \(error)")
                }
            }
            if !candidates.isEmpty {
                try file.setAside()
                warnings.append("no identifier is known any more; the damaged table is \(file.path).damaged")
            }
            return (IdentifierTable(), warnings)
        } catch {
            throw Failure(description: error.code == 0 ? error.call : "\(error)", code: error.code)
        }
    }

    /// Changes the table, and has it written soon. Called by one thread only.
    package func update(_ change: (inout IdentifierTable) -> Void) {
        let before = table
        change(&table)
        guard table != before else { return }
        write(table.encoded)
    }

    private func write(_ bytes: [UInt8]) {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        pending = bytes
        guard !isWriting else { return }
        isWriting = startThread()
        if !isWriting { onFailure(SystemError("pthread_create")) }
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
        while let bytes = next() {
            do throws(SystemError) {
                try file.write(bytes)
            } catch {
                onFailure(error)
            }
        }
    }

    private func next() -> [UInt8]? {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        defer { pending = nil }
        if pending == nil {
            isWriting = false
            unsafe pthread_cond_broadcast(condition)
        }
        return pending
    }
}
