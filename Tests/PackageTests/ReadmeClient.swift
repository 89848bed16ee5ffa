import Glibc
import Nightbell

/// The client of the README's first screen, compiled. A test holds that the README has the same lines.
func readmeClient(
    connectToServer: () throws -> CInt, answer: @escaping @Sendable (CInt) -> Void,
    refreshRegistration: @escaping @Sendable (CInt) -> Void
) throws {
    let server = try connectToServer()  // your own connected TCP or UDP socket
    let client = try Client(
        .init(identifier: "org.example.phone", requiresSupervisor: false),  // without one it stays awake
        handlers: .init { wake in
            print("slept for \(wake.asleepFor), woken by \(wake.reasons)")
            fflush(nil)
            if !wake.sockets.isEmpty { answer(server) }
        })
    _ = try client.handOver(server, as: .voip, name: "registration")
    try client.setKeepAliveTimeout(.seconds(600)) { refreshRegistration(server) }
    try client.enterBackground()  // from here on the process sleeps whenever there is nothing to do
    while true { pause() }
}
