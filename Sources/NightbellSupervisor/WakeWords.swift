package import Descriptors

/// The wake words of all clients: in pages of shared memory, one uid's clients in each, because everybody who has a
/// word sees the whole page.
package struct WakeWords: ~Copyable {
    /// Where a client's word is.
    package struct Place: Sendable {
        package let page: UInt32
        package let index: UInt16
    }

    private var pages = UniqueSlots<SharedPage>()
    private var free: [UInt32: [Place]] = [:]

    package init() {}

    /// A word for a client of this user; 0, which is no epoch.
    package mutating func take(user: UInt32) throws(SystemError) -> Place {
        if free[user, default: []].isEmpty { try addPage(for: user) }
        guard let place = free[user, default: []].popLast() else {
            preconditionFailure("a new page has free words")
        }
        store(0, at: place)
        return place
    }

    private mutating func addPage(for user: UInt32) throws(SystemError) {
        let page = UInt32(pages.count)
        pages.append(try SharedPage(name: "nightbell-wake-words"))
        free[user] = (0..<UInt16(SharedPage.wordCount)).reversed().map { Place(page: page, index: $0) }
    }

    package mutating func giveBack(_ place: Place, user: UInt32) {
        free[user, default: []].append(place)
    }

    package func store(_ value: UInt64, at place: Place) {
        switch pages[Int(place.page)] {
        case .some(let page): page.store(value, at: Int(place.index))
        case .none: preconditionFailure("pages are kept")
        }
    }

    /// The page's descriptor, for the client.
    package func descriptor(for place: Place) -> CInt {
        switch pages[Int(place.page)] {
        case .some(let page): page.descriptor.rawValue
        case .none: preconditionFailure("pages are kept")
        }
    }
}
