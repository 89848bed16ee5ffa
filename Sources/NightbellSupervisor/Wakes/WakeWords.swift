package import LinuxSystem

/// The wake words of all clients, in pages of shared memory. A page holds one uid's clients only, because
/// every client with a word in it sees the whole page.
package struct WakeWords: ~Copyable {
    /// Where a client's word is.
    package struct Place: Sendable {
        package let page: UInt32
        package let index: UInt16
    }

    private var pages = UniqueSlots<SharedPage>()
    /// The number of words in use in each page.
    private var live: [Int] = []
    /// Free words, by user.
    private var free: [UInt32: [Place]] = [:]
    /// Indices of pages that were given back.
    private var vacant: [UInt32] = []

    package init() {}

    /// Pages, and so descriptors, in use.
    package var pageCount: Int { live.count - vacant.count }

    /// A word for a client of this user; its value is 0, which is no epoch.
    package mutating func allocate(user: UInt32) throws(SystemError) -> Place {
        if free[user, default: []].isEmpty { try addPage(for: user) }
        guard let place = free[user, default: []].popLast() else {
            preconditionFailure("a new page has free words")
        }
        live[Int(place.page)] += 1
        unsafe word(at: place).store(0)
        return place
    }

    private mutating func addPage(for user: UInt32) throws(SystemError) {
        let shared = try SharedPage(name: "nightbell-wake-words")
        let page: UInt32
        if let place = vacant.popLast() {
            page = place
            pages[Int(page)] = consume shared
        } else {
            page = UInt32(pages.count)
            pages.append(shared)
            live.append(0)
        }
        free[user] = (0..<UInt16(SharedPage.wordCount)).reversed().map { Place(page: page, index: $0) }
    }

    package mutating func giveBack(_ place: Place, user: UInt32) {
        free[user, default: []].append(place)
        live[Int(place.page)] -= 1
        guard live[Int(place.page)] == 0 else { return }
        // No word of this page is in use any more. Close it: a descriptor for each uid that ever connected
        // would add up.
        free[user]?.removeAll { $0.page == place.page }
        if free[user]?.isEmpty ?? false { free[user] = nil }
        pages[Int(place.page)] = nil
        vacant.append(place.page)
    }

    /// Valid until the word is given back.
    package func word(at place: Place) -> SharedPage.Word {
        switch pages[Int(place.page)] {
        case .some(let page): unsafe page.word(at: Int(place.index))
        case .none: preconditionFailure("a word in use has a page")
        }
    }

    /// The page's descriptor, for the client.
    package func descriptor(for place: Place) -> CInt {
        switch pages[Int(place.page)] {
        case .some(let page): page.descriptor.rawValue
        case .none: preconditionFailure("a word in use has a page")
        }
    }
}
