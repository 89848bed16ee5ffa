import EdgeTestSupport
import Glibc
import NIOCore
import NIOPosix
import NightbellNIO
import Synchronization
import Testing

/// Channels that could not be restored as they are.
@Suite(.timeLimit(.minutes(40))) struct RefusalTests {
    /// Its handshake was over before it was watched, and no data was sent since.
    @Test func aSilentEncryptedChannelIsRefused() throws {
        let server = try LineServer(isEncrypted: true)
        let client = try LineClient(server)
        #expect(eventually { server.seen.errors == [.tls] })
        try client.say(FakeTLS.change("one\n".utf8))
        #expect(try client.hearBytes(6) == FakeTLS.change("1 one\n".utf8))
        #expect(server.hibernator.counters.hibernated == 0 && server.seen.errors == [.tls])
        try server.end()
    }

    /// Datagrams are no stream, and a pipe is no socket.
    @Test func anythingButAStreamSocketIsRefused() throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let hibernator = try Hibernator(.init(idleTime: .milliseconds(10))) { _, _ in throw Broken() }
        let box = LineServer.Box()
        let watch: @Sendable (any Channel) -> EventLoopFuture<Void> = { channel in
            channel.eventLoop.makeCompletedFuture {
                let session = LineSession(box)
                try channel.pipeline.syncOperations.addHandler(session)
                do {
                    try hibernator.watch(channel, saving: session)
                } catch let error as HibernationError {
                    box.value.withLock { $0.errors.append(error.code) }
                }
            }
        }
        let datagrams = try DatagramBootstrap(group: group).channelInitializer(watch)
            .bind(host: "127.0.0.1", port: 0).wait()
        var ends: [CInt] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let pipes = try NIOPipeBootstrap(group: group).channelInitializer(watch)
            .takingOwnershipOfDescriptors(input: ends[0], output: ends[1]).wait()
        #expect(box.value.withLock { $0.errors } == [.notASocket, .notASocket])
        for channel in [datagrams, pipes] { try channel.close().wait() }
        try group.syncShutdownGracefully()
    }
}
