import LinuxSystem

/// Reads the configuration and the manifests again, on a thread of its own: no wake waits for long files.
///
/// `finished` is signalled when a result can be taken.
@safe
final class ConfigurationReader: @unchecked Sendable {
    // Sendable: the result is touched only with the lock held, everything else only on the loop's thread.

    let finished: EventDescriptor
    private let lock = Lock()
    private var result: SupervisorConfiguration.Reloaded?

    /// Connections that wait for the reading under way, and their requests. Nothing else is read from them
    /// meanwhile.
    private var waiting: [Request] = []
    /// Requests since it began: a file may have been changed before one.
    private var next: [Request]?
    private var isReading = false

    typealias Request = (connection: UInt64, request: UInt64)
    typealias Read = @Sendable () -> SupervisorConfiguration.Reloaded

    init() throws(SystemError) { finished = try EventDescriptor() }

    /// Reads for these requests, now or after the reading under way.
    func read(for requests: [Request], _ read: @escaping Read) {
        guard !isReading else {
            next = (next ?? []) + requests
            return
        }
        waiting = requests
        isReading = true
        // Strongly: the thread may outlive the supervisor.
        guard Thread.start({ self.finish(read()) }) != 0 else { return }
        finish(read())
    }

    private func finish(_ reloaded: SupervisorConfiguration.Reloaded) {
        lock.lock()
        result = reloaded
        lock.unlock()
        do throws(SystemError) {
            try finished.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    /// The result, the requests that it answers, and those of the next reading, if there is to be one.
    func take() -> (SupervisorConfiguration.Reloaded, for: [Request], next: [Request]?)? {
        do throws(SystemError) {
            try finished.clear()
        } catch {
            preconditionFailure("an eventfd of our own can be read: \(error)")
        }
        lock.lock()
        defer { lock.unlock() }
        guard let reloaded = result.take() else { return nil }
        isReading = false
        return (reloaded, waiting, next.take())
    }
}
