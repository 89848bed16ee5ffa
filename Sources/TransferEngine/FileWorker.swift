import Crypto
import DequeModule
import EventHandlers
import EventLoop
import Glibc
import LinuxSystem

/// A thread for work on files that takes time: writing to the disk, copies and digests. The loop must not
/// wait for them.
final class FileWorker {
    /// The descriptors are closed by their owner, after the result has come; that of `close` is the worker's.
    enum Job: Sendable {
        /// Write to the disk.
        case flush(CInt)
        /// The same with the file of this path; fails, if it is gone.
        case flushFile(path: String)
        /// Compute the SHA-256 of so many bytes from the beginning.
        case digest(CInt, bytes: Int64)
        /// Find out the size of a client's file, if it is a regular one.
        case measure(CInt)
        /// Copy this many bytes from the beginning, and write the copy to the disk.
        case copy(from: CInt, to: CInt, bytes: Int64)
        /// Close a client's file, which its file system may hold up.
        case close(CInt)
    }

    enum Result: Sendable {
        case done(digest: [UInt8]?)
        case measured(bytes: Int64)
        case failed(SystemError)
    }

    private struct Order: Sendable {
        let number: UInt64
        let job: Job
    }

    /// Shared with the thread. Sendable: changed only with the lock held.
    private final class Shared: @unchecked Sendable {
        let lock = ConditionLock()
        var orders = Deque<Order>()
        var results: [(UInt64, Result)] = []
        var hasEnded = false
        /// Jobs that are to end early.
        var cancelled: Set<UInt64> = []
        /// Since when the thread waits for a client's file, by `RunningClock`; nil: it does not.
        var readingSince: Int64?
        let resultEvent: EventDescriptor

        init() throws(SystemError) { resultEvent = try EventDescriptor() }
    }

    private let shared: Shared
    private var watch: DescriptorWatch?
    private var handlers: [UInt64: (Result) -> Void] = [:]
    private var last: UInt64 = 0

    init(_ loop: HandlerLoop) throws(TransferError) {
        let shared: Shared
        do throws(SystemError) {
            shared = try Shared()
            let code = Thread.start { Self.run(shared) }
            guard code == 0 else { throw SystemError(code: code, call: "pthread_create") }
        } catch {
            throw .system(error)
        }
        self.shared = shared
        do throws(LoopError) {
            watch = try DescriptorWatch(loop, shared.resultEvent.rawValue, .read) { [unowned self] _ in
                deliver()
            }
        } catch {
            throw .loop(error)
        }
    }

    deinit {
        shared.lock.lock()
        shared.hasEnded = true
        shared.lock.signal()
        shared.lock.unlock()
    }

    var isIdle: Bool { handlers.isEmpty }

    /// Since when the thread waits for a client's file, by `RunningClock`; nil: it does not.
    var readingSince: Int64? {
        shared.lock.lock()
        defer { shared.lock.unlock() }
        return shared.readingSince
    }

    /// - Parameter handler: called on the loop's thread.
    /// - Returns: the number of the job.
    @discardableResult
    func submit(_ job: Job, _ handler: @escaping (Result) -> Void) -> UInt64 {
        last += 1
        handlers[last] = handler
        shared.lock.lock()
        shared.orders.append(Order(number: last, job: job))
        shared.lock.signal()
        shared.lock.unlock()
        return last
    }

    /// A copy fails with ECANCELED, if it has not ended yet.
    func cancel(_ job: UInt64) {
        guard handlers[job] != nil else { return }
        shared.lock.lock()
        shared.cancelled.insert(job)
        shared.lock.unlock()
    }

    private func deliver() {
        _ = try? shared.resultEvent.clear()
        shared.lock.lock()
        let results = shared.results
        shared.results.removeAll(keepingCapacity: true)
        shared.lock.unlock()
        for (number, result) in results { handlers.removeValue(forKey: number)?(result) }
    }

    // MARK: The thread

    private static func run(_ shared: Shared) {
        while true {
            shared.lock.lock()
            while shared.orders.isEmpty, !shared.hasEnded { shared.lock.wait() }
            if shared.hasEnded { return shared.lock.unlock() }
            let order = shared.orders.removeFirst()
            shared.lock.unlock()
            let result = perform(order, shared)
            shared.lock.lock()
            shared.cancelled.remove(order.number)
            shared.results.append((order.number, result))
            shared.lock.unlock()
            try? shared.resultEvent.signal()
        }
    }

    private static func perform(_ order: Order, _ shared: Shared) -> Result {
        do throws(SystemError) {
            switch order.job {
            case .flush(let file):
                _ = try systemCall("fdatasync") { fdatasync(file) }
                return .done(digest: nil)
            case .flushFile(let path):
                let file = try OwnedDescriptor(opening: path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                let rawValue = file.rawValue
                _ = try systemCall("fdatasync") { fdatasync(rawValue) }
                return .done(digest: nil)
            case .digest(let file, let bytes):
                return .done(digest: try digest(file, bytes))
            case .measure(let file):
                var status = stat()
                _ = try foreignCall("fstat", shared) { unsafe Int(fstat(file, &status)) }
                guard status.st_mode & S_IFMT == S_IFREG else { return .done(digest: nil) }
                return .measured(bytes: Int64(status.st_size))
            case .copy(let source, let target, let bytes):
                try copy(source, target, bytes, order.number, shared)
                _ = try systemCall("fsync") { fsync(target) }
                return .done(digest: nil)
            case .close(let file):
                // Not repeated, whatever it returns.
                _ = try foreignCall("close", shared) {
                    _ = Glibc.close(file)
                    return 0
                }
                return .done(digest: nil)
            }
        } catch {
            return .failed(error)
        }
    }

    private static let bufferBytes = 1 << 20
    /// A slow file system may take long for each read, and nothing interrupts one.
    private static let copiedBytes = 1 << 16

    private static func digest(_ file: CInt, _ length: Int64) throws(SystemError) -> [UInt8] {
        var hash = SHA256()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: bufferBytes, alignment: 16)
        defer { unsafe buffer.deallocate() }
        var offset: Int64 = 0
        while offset < length {
            let wanted = min(Int64(bufferBytes), length - offset)
            let count = try systemCall("pread") {
                unsafe pread(file, buffer.baseAddress, Int(wanted), Int(offset))
            }
            guard count > 0 else { throw SystemError(code: EIO, call: "pread") }
            unsafe hash.update(bufferPointer: UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            offset += Int64(count)
        }
        return Array(hash.finalize())
    }

    /// A call that the file system of a client's file may not answer.
    private static func foreignCall(
        _ name: String, _ shared: Shared, _ call: () -> Int
    ) throws(SystemError) -> Int {
        func note(_ instant: Int64?) {
            shared.lock.lock()
            shared.readingSince = instant
            shared.lock.unlock()
        }
        note(RunningClock.now())
        defer { note(nil) }
        return try systemCall(name, call)
    }

    private static func copy(
        _ source: CInt, _ target: CInt, _ bytes: Int64, _ number: UInt64, _ shared: Shared
    ) throws(SystemError) {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: copiedBytes, alignment: 16)
        defer { unsafe buffer.deallocate() }
        var offset: Int64 = 0
        while offset < bytes {
            shared.lock.lock()
            let isCancelled = shared.cancelled.contains(number)
            shared.lock.unlock()
            guard !isCancelled else { throw SystemError(code: ECANCELED, call: "copy") }
            let wanted = min(Int64(copiedBytes), bytes - offset)
            let count = try foreignCall("pread", shared) {
                unsafe pread(source, buffer.baseAddress, Int(wanted), Int(offset))
            }
            guard count > 0 else { throw SystemError(code: EIO, call: "pread") }
            var written = 0
            while written < count {
                written += try systemCall("pwrite") {
                    unsafe pwrite(
                        target, buffer.baseAddress?.advanced(by: written), count - written,
                        Int(offset) + written)
                }
            }
            offset += Int64(count)
        }
    }
}
