/// A position of the machine, on the sphere.
package struct Position: Sendable, Hashable {
    /// Degrees, north positive.
    package let latitude: Double
    /// Degrees, east positive.
    package let longitude: Double
    /// The radius in metres in which the machine is.
    package let accuracy: Double

    /// nil: a value is out of its range, or no number.
    package init?(latitude: Double, longitude: Double, accuracy: Double) {
        guard abs(latitude) <= 90, abs(longitude) <= 180, accuracy >= 0, accuracy.isFinite else {
            return nil
        }
        self.latitude = latitude
        self.longitude = longitude
        self.accuracy = accuracy
    }

    /// The mean radius of the earth in metres.
    private static let earth = 6_371_008.8

    /// In metres, through the earth: over 1,000 km this is 0.1 % less than on its surface.
    package func distance(to other: Position) -> Double {
        let (one, two) = (vector, other.vector)
        let (x, y, z) = (one.x - two.x, one.y - two.y, one.z - two.z)
        return Self.earth * (x * x + y * y + z * z).squareRoot()
    }

    /// On the unit sphere.
    private var vector: (x: Double, y: Double, z: Double) {
        let (latitude, longitude) = (latitude * .pi / 180, longitude * .pi / 180)
        let parallel = cosine(latitude)
        return (parallel * cosine(longitude), parallel * sine(longitude), sine(latitude))
    }
}

// Their series, because the core uses no mathematical library, and gives the same results everywhere.

/// Exact to 1e-14 between -π and π.
private func sine(_ angle: Double) -> Double { series(first: angle, angle * angle, from: 2) }

private func cosine(_ angle: Double) -> Double { series(first: 1, angle * angle, from: 1) }

private func series(first: Double, _ square: Double, from start: Double) -> Double {
    var (sum, term, n) = (first, first, start)
    for _ in 0..<15 {
        term *= -square / (n * (n + 1))
        sum += term
        n += 2
    }
    return sum
}

/// A circle that the machine may enter and leave.
package struct Region: Sendable, Hashable {
    package let centre: Position
    /// In metres.
    package let radius: Double
    package static let radii: ClosedRange<Double> = 10...1_000_000

    /// nil: the radius is out of its range.
    package init?(centre: Position, radius: Double) {
        guard Self.radii.contains(radius) else { return nil }
        self.centre = centre
        self.radius = radius
    }

    /// How far outside the machine has to be before it counts as having left, in metres.
    package var margin: Double { max(50, radius / 10) }

    /// Whether a position is inside. At the edge it is as it was, and at first outside; a coarse position
    /// says nothing, unless all of it is outside.
    ///
    /// - Returns: nil, if that is unknown.
    func contains(_ position: Position, wasInside: Bool?) -> Bool? {
        let distance = position.distance(to: centre)
        if position.accuracy > radius + margin {
            return distance - position.accuracy > radius + margin ? false : nil
        }
        if distance <= radius { return true }
        return distance > radius + margin ? false : wasInside ?? false
    }
}
