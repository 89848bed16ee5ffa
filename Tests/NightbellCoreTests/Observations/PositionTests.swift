import NightbellCore
import Testing

@Suite("Positions and regions")
struct PositionTests {
    private func position(
        _ latitude: Double, _ longitude: Double, accuracy: Double = 10
    ) throws -> Position {
        try #require(Position(latitude: latitude, longitude: longitude, accuracy: accuracy))
    }

    /// Distances on the sphere, from the haversine formula.
    @Test(arguments: [
        (52.5, 13.4, 52.5, 13.4, 0), (0, 0, 0, 0.001, 111.195), (52.52, 13.405, 52.521, 13.405, 111.195),
        (0, 179.9995, 0, -179.9995, 111.195), (90, 0, 90, 123, 0), (89.999, 0, 89.999, 180, 222.39),
        (52.52, 13.405, 48.137, 11.575, 504_000), (-33.9, 151.2, -33.91, 151.2, 1_111.95),
    ])
    func distances(
        _ latitude: Double, _ longitude: Double, _ otherLatitude: Double, _ otherLongitude: Double,
        _ distance: Double
    ) throws {
        let found = try position(latitude, longitude).distance(to: position(otherLatitude, otherLongitude))
        #expect(abs(found - distance) <= max(0.01, distance / 500), "\(found)")
    }

    @Test func invalidPositions() {
        for (latitude, longitude, accuracy) in [
            (90.1, 0, 0), (0, -180.1, 0), (.nan, 0, 0), (0, .infinity, 0), (0, 0, -1), (0, 0, .infinity),
        ] {
            #expect(Position(latitude: latitude, longitude: longitude, accuracy: accuracy) == nil)
        }
        for radius in [9, 1_000_001, .nan] {
            #expect(
                Position(latitude: 0, longitude: 0, accuracy: 0)
                    .flatMap { Region(centre: $0, radius: radius) } == nil)
        }
    }

    /// A machine at the edge of a region is told once.
    @Test func regionsHaveHysteresis() throws {
        var bench = Bench()
        let client = try bench.register(modes: .location)
        let region = try #require(Region(centre: position(0, 0), radius: 1_000))
        bench.say(.observe(name: "home", .region(region)), from: client)
        var told: [Occurrence] = []
        // Metres from its centre, and the accuracy.
        for (metres, accuracy) in [
            (5_000, 10), (990, 10), (1_050, 10), (990, 10), (1_099, 10), (1_101, 10), (1_050, 10), (999, 10),
            (5_000, 6_000), (5_000, 2_000), (0, 2_000), (0, 500),
        ] as [(Double, Double)] {
            bench.turn(.fact(.position(try position(0, metres / 111_195, accuracy: accuracy))))
            told += bench.actions.observed.map(\.occurrence)
        }
        #expect(told == [.entered, .exited, .entered, .exited, .entered])
    }

    /// A machine that is first seen near the edge, and outside, enters once it is inside.
    @Test func oneThatStartsAtTheEdgeEnters() throws {
        var bench = Bench()
        let client = try bench.register(modes: .location)
        let region = try #require(Region(centre: position(0, 0), radius: 1_000))
        bench.say(.observe(name: "home", .region(region)), from: client)
        bench.turn(.fact(.position(try position(0, 1_050 / 111_195))))
        #expect(bench.actions.observed.isEmpty)
        bench.turn(.fact(.position(try position(0, 900 / 111_195))))
        #expect(bench.actions.observed.map(\.occurrence) == [.entered])
    }

    /// A movement from the edge to the centre is reported.
    @Test(arguments: [(10.0, 5), (50, 25), (100, 25), (1_000, 50), (10_000, 500)] as [(Double, UInt32)])
    func theDistanceThatARegionNeeds(radius: Double, distance: UInt32) throws {
        var bench = Bench()
        let client = try bench.register(modes: .location)
        let region = try #require(Region(centre: position(0, 0), radius: radius))
        bench.say(.observe(name: "home", .region(region)), from: client)
        #expect(bench.core.observationDemand.location?.distance == distance)
    }
}
