import NightbellCore
import Presentation
import Simulation

/// The result of the scheduler of fetches over some days, as text or as JSON.
struct FetchReport {
    private let seed: UInt64
    private let clients: Int
    private let days: Int
    private let learned: FetchTally
    private let unlearned: FetchTally
    /// The instants at which the machine is awake if nothing is fetched.
    private let instants: Int

    init(seed: UInt64, clients: Int, days: Int) {
        self.seed = seed
        self.clients = clients
        self.days = days
        func tally(_ policy: FetchWorld.Policy) -> FetchTally {
            var world = FetchWorld(seed: seed, clients: clients, days: days, policy: policy)
            world.run()
            return world.tally
        }
        learned = tally(.learned)
        unlearned = tally(.unlearned)
        instants = tally(.none).otherInstants
    }

    private func share(_ tally: FetchTally) -> Double {
        Double(tally.extraInstants) / Double(max(instants, 1))
    }

    /// The targets that were missed, in words. Those of shares are for 200 clients and 14 days: with few
    /// clients, and while most of the days are those of learning, they may be missed by chance.
    var misses: [String] {
        let targets = [
            (learned.openings.share >= 0.9, "fresh_share is less than 0.9"),
            (learned.fetchesPerDay(percentile: 50) <= 12, "fetches_per_day.p50 is more than 12"),
            (learned.belowFloor == 0, "below_floor is not 0"),
            (learned.illTimed == 0, "ill_timed is not 0"),
            (share(learned) <= 0.1, "extra_instants_share is more than 0.1"),
        ]
        return targets.filter { !$0.0 }.map(\.1)
    }

    private static func rounded(_ share: Double) -> Double { (share * 10_000).rounded() / 10_000 }

    private func members(_ tally: FetchTally) -> [JSON.Member] {
        func openings(_ list: [(name: String, openings: FetchTally.Openings)]) -> JSON {
            .object(
                list.filter { $0.openings.all > 0 }.map {
                    .init(name: $0.name, value: .number(Self.rounded($0.openings.share)))
                })
        }
        return [
            .init(name: "fresh_share", value: .number(Self.rounded(tally.openings.share))),
            .init(name: "openings", value: .integer(Int64(tally.openings.all))),
            .init(
                name: "fetches_per_day",
                value: [
                    "p50": .integer(Int64(tally.fetchesPerDay(percentile: 50))),
                    "p90": .integer(Int64(tally.fetchesPerDay(percentile: 90))),
                    "max": .integer(Int64(tally.fetchesPerDay.last ?? 0)),
                ]),
            .init(name: "below_floor", value: .integer(Int64(tally.belowFloor))),
            .init(name: "ill_timed", value: .integer(Int64(tally.illTimed))),
            .init(name: "extra_instants_share", value: .number(Self.rounded(share(tally)))),
            .init(name: "fresh_share_by_person", value: openings(tally.openingsByPerson)),
            .init(name: "fresh_share_by_behaviour", value: openings(tally.openingsByBehaviour)),
            .init(
                name: "fetches_by_behaviour",
                value: .object(
                    tally.fetchesByBehaviour.map {
                        .init(name: $0.name, value: .integer(Int64($0.fetches)))
                    })),
        ]
    }

    var json: JSON {
        .object(
            [
                .init(name: "seed", value: .unsigned(seed)),
                .init(name: "clients", value: .integer(Int64(clients))),
                .init(name: "days", value: .integer(Int64(days))),
                .init(name: "other_instants", value: .integer(Int64(instants))),
            ] + members(learned) + [
                .init(name: "unlearned", value: .object(members(unlearned))),
                .init(name: "missed", value: .array(misses.map(JSON.string))),
            ])
    }

    var text: String {
        func percent(_ share: Double) -> String { "\((share * 1_000).rounded() / 10) %" }
        func lines(_ tally: FetchTally) -> [String] {
            let perDay = [50, 90].map { "p\($0) \(tally.fetchesPerDay(percentile: $0))" }
            return [
                "  openings after a fresh fetch  \(percent(tally.openings.share)) of \(tally.openings.all)",
                "  fetches of a client in a day  \(perDay.joined(separator: ", "))",
                "  before the floor was over     \(tally.belowFloor)",
                "  extra wake instants           \(percent(share(tally)))",
            ]
        }
        return
            (["\(clients) clients, \(days) days, seed \(seed)", "with learned habits"] + lines(learned)
            + ["at equal intervals"] + lines(unlearned)
            + misses.map { "MISSED: \($0)" }).joined(separator: "\n")
    }
}
