/// The number beside the icon of an identifier, in launchers and docks.
package struct NotificationBadge: Sendable, Equatable {
    /// Of its record, from the first badge of an identifier to the last.
    package var number: UInt64
    /// At least 1.
    package var count: UInt32

    package init(number: UInt64, count: UInt32) {
        self.number = number
        self.count = count
    }
}

extension Supervision {
    /// Those of one demand. Of more, some are not shown.
    private static let badgesAtOnce = 64

    /// - Parameter count: 0: none.
    mutating func setBadge(_ count: UInt32, at place: UInt32, of user: UserID) {
        let former = notifications.place(place)?.badge
        guard former?.count ?? 0 != count else { return }
        let number = former?.number ?? notifications.nextNumber()
        notifications.set(count == 0 ? nil : .init(number: number, count: count), at: place, of: user)
        recordNotification(number, place)
    }

    /// To be told to the launchers of a user's session.
    func badges(of user: UserID) -> [NotificationDemand.Badge] {
        notifications.placesWithBadge(of: user).prefix(Self.badgesAtOnce).compactMap { place in
            notifications.place(place)?.badge.map {
                .init(client: owners.identifier(at: place), count: $0.count)
            }
        }
    }
}
