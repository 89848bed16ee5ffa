import Glibc
import Nightbell

/// A descriptor that an example serves, beside its connection to the supervisor.
protocol Service: AnyObject {
    /// The descriptor and what it is polled for; -1: there is none at present.
    var polled: pollfd { get }
    /// Handles all that has come.
    func serve()
    /// Something has happened to the subject of an observation.
    func note(_ occurrence: Occurrence)
}

/// Runs a client and its service on one thread, so that no work is half done when the process is suspended.
/// From the announcement of that until the wake nothing is read: it stays in the kernel, and wakes.
final class Loop: @unchecked Sendable {
    // Sendable: handlers run inside `processPending`, so on the thread of `run`.
    private let service: any Service
    private var isSuspending = false

    init(_ service: any Service) { self.service = service }

    /// A client that this loop drives.
    func makeClient(_ mode: String, _ modes: Set<Mode>) throws -> Client {
        var configuration = configuration(mode, modes)
        configuration.driver = .manual
        var handlers = handlers()
        let report = handlers.wake
        handlers.wake = { [self] wake in
            isSuspending = false
            report(wake)
            for occurrence in wake.occurrences { service.note(occurrence) }
            service.serve()
        }
        let prepare = handlers.prepareToSuspend
        handlers.prepareToSuspend = { [self] in
            service.serve()
            isSuspending = true
            return prepare()
        }
        handlers.suspendCancelled = { [self] in isSuspending = false }
        return try Client(configuration, handlers: handlers)
    }

    func run(_ client: Client) throws -> Never {
        while true {
            if !isSuspending { service.serve() }
            var waiting = [pollfd(fd: client.fileDescriptor, events: Int16(POLLIN), revents: 0)]
            if !isSuspending { waiting.append(service.polled) }
            poll(&waiting, nfds_t(waiting.count), -1)
            try client.processPending()
        }
    }
}
