import NightbellCore
import Testing

@testable import LoadTester

@Suite("Keep-alives under a virtual clock")
struct VirtualKeepAliveTests {
    private static let settings = VirtualKeepAlive.Settings(clients: 40, hours: 3, seed: 5)

    private func late(_ core: NightbellCore.Settings) throws -> (late: Int, runs: Int) {
        var run = VirtualKeepAlive(Self.settings, core: core)
        let outcome = try run.run(Progress(quiet: true))
        return (outcome.late, outcome.runs)
    }

    @Test("Handlers that never run are late, although no event says so")
    func never() throws {
        let core = VirtualKeepAlive.core(Self.settings)
        #expect(try late(core).late == 0)
        // About half of the timeouts are refused, or all of them.
        var some = core
        some.keepAlive.minimumTimeout = .seconds(1_200)
        let half = try late(some)
        #expect((10...30).contains(half.late) && half.runs > 0)
        var all = core
        all.keepAlive.minimumTimeout = .seconds(3_600)
        #expect(try late(all) == (40, 0))
    }
}
