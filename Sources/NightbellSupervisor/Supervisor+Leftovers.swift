import Descriptors
import Glibc
public import Logging

extension Supervisor {
    /// Lets everything run that an earlier supervisor of this configuration has left stopped, and does nothing
    /// else. A supervisor does this by itself when it starts; this is for when none is to start.
    ///
    /// - Throws: `SupervisorError` with `EADDRINUSE` while a supervisor serves the control socket: what is stopped
    ///   then is stopped on purpose.
    public static func thawLeftovers(
        of configuration: SupervisorConfiguration, logger: Logger
    ) throws(SupervisorError) {
        try refuseIfServed(configuration)
        _ = try prepareSuspension(configuration, logger)
    }

    /// A second supervisor of one configuration must find this out before it thaws what the first has stopped.
    static func refuseIfServed(_ configuration: SupervisorConfiguration) throws(SupervisorError) {
        do {
            _ = try SeqPacketSocket.connect(path: configuration.socketPath)
        } catch {
            return
        }
        throw SupervisorError(
            .socket, SystemError(code: EADDRINUSE, call: "connect"),
            "a supervisor serves \(configuration.socketPath)")
    }
}
