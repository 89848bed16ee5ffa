import ChatService
import EdgeTestSupport
import Testing

/// Everything that a server has made is freed with it.
@Suite(.timeLimit(.minutes(40))) struct EndTests {
    private final class Owned: Sendable {}

    @Test(arguments: [1, 3]) func nothingIsLeftOfAServerThatHasStopped(threads: Int) throws {
        weak var left: Owned?
        do {
            let owned = Owned()
            left = owned
            try withServer(threads: threads, willRebuild: { withExtendedLifetime(owned) {} }) { server in
                let (asleep, gone) = (try ChatClient(server.port), try ChatClient(server.port))
                try asleep.join(as: "Ann")
                #expect(try asleep.hear().type == "welcome")
                try gone.join(as: "Bob")
                #expect(try gone.hear().type == "welcome" && asleep.hear().type == "joined")
                #expect(server.sleeps(2))
                try gone.write(ChatClient.frame(8, []))
                #expect(try gone.end() == .close(1_000))
                #expect(server.sleeps(1))
            }
        }
        #expect(eventually { left == nil })
    }

    @Test func nothingIsLeftOfAServerThatCannotListen() throws {
        try withServer { server in
            weak var left: Owned?
            do {
                let owned = Owned()
                left = owned
                var configuration = ChatServer.Configuration()
                configuration.port = server.port
                configuration.willRebuild = { withExtendedLifetime(owned) {} }
                let error = #expect(throws: ChatServer.CannotListen.self) { try ChatServer(configuration) }
                #expect(error?.description.contains(":\(server.port): Address already in use") == true)
            }
            #expect(eventually { left == nil })
        }
    }
}
