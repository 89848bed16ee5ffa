import NightbellCore
import Testing

@Suite struct OffloadScaleTests {
    /// Everything else waits while a client with thousands of sockets is removed.
    @Test func theEndOfAClientTakesTimeInProportionToItsSockets() throws {
        func leastTime(_ count: Int) throws -> Duration {
            try (0..<5).map { _ in
                var bench = Bench {
                    $0.quotas.socketsPerClient = count
                    $0.quotas.socketsPerUser = count
                }
                let client = try bench.register()
                var offer = SocketOffer(tag: .voip)
                offer.profile = 3
                let offers = Array(repeating: offer, count: count)
                bench.turn(.message(.handOver(offers), from: client, Bench.key))
                return ContinuousClock().measure { bench.turn(.gone(client)) }
            }.min() ?? .zero
        }
        // Eight times as many: in proportion to their square it would be 64 times as long.
        let (few, many) = try (leastTime(2_000), leastTime(16_000))
        #expect(many < few * 24, "\(few), \(many)")
    }
}
