// A WebSocket server on SwiftNIO, for tests: it pings its clients. Plain requests control it: `GET
// /pings/MILLISECONDS` sets the interval of pings (0: none), `GET /say/TEXT` sends a message to all clients,
// `GET /counters` returns the numbers of sent and answered pings.

import NIOCore
import NIOHTTP1
import NIOPosix
import NIOWebSocket

@main
struct Main {
    static func main() throws {
        guard CommandLine.arguments.count == 2, let port = Int(CommandLine.arguments[1]) else {
            print("usage: websocket-server PORT")
            return
        }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let hub = NIOLoopBoundBox.makeBoxSendingValue(Hub(), eventLoop: loop)
        let upgrader = NIOWebSocketServerUpgrader { channel, _ in
            channel.eventLoop.makeSucceededFuture([:])
        } upgradePipelineHandler: { channel, _ in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(Conversation(hub.value))
            }
        }
        let server = try ServerBootstrap(group: loop)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.configureHTTPServerPipeline(
                        withServerUpgrade: (
                            upgraders: [upgrader],
                            completionHandler: { context in
                                context.pipeline.removeHandler(name: Orders.name, promise: nil)
                            }
                        ))
                    try pipeline.addHandler(Orders(hub.value), name: Orders.name)
                }
            }
            .bind(host: "127.0.0.1", port: port).wait()
        try server.closeFuture.wait()
    }
}
