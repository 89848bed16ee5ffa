import Testing

extension RunTests {
    @Test(
        "push: no kill loses a message or hands it over as two, and what waits for the hour is merged by topic"
    )
    func push() throws {
        let told = try run("push --clients 6 --pushes 60 --kills 6 --suspend \(Self.method)")
        for name in ["lost", "duplicate", "foreign", "refused", "merging.lost"] {
            #expect(told.number(name) == 0, "\(name): \(told.text)")
        }
        #expect(told.number("kills") == 6)
        for victim in ["gateway", "worker", "client"] {
            #expect(told.number("killed.\(victim)") == 2, "\(told.text)")
        }
        let unanswered = try #require(told.number("unanswered"))
        #expect(told.number("accepted").map { $0 + unanswered } == 60)
        expectNumbers(told, "repeated", "wakes", "wakes_per_push", "latency_us.p50", "latency_us.p99")
        try expectMerged(told)
    }

    /// Of 32 messages for each client nine are told of one by one. The others wait, as the last ones of four topics, and
    /// are told of by one wake.
    private func expectMerged(_ told: Told) throws {
        let clients = 6.0
        #expect(told.number("merging.pushes") == clients * 32)
        #expect(told.number("merging.delivered") == clients * (9 + 4), "\(told.text)")
        #expect(told.number("merging.replaced") == clients * (32 - 9 - 4), "\(told.text)")
        #expect(told.number("merging.wakes") == clients * (9 + 1), "\(told.text)")
        #expect(try abs(#require(told.number("merging.wakes_per_push")) - 10 / 32) < 0.001)
    }
}
