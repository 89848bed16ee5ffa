import Testing

@testable import NightbellCore

@Suite struct OwnersTests {
    /// Compared with a dictionary.
    @Test func itIsADictionary() throws {
        var owners = Owners()
        var dictionary: [ClientIdentifier: Supervision.Ownership] = [:]
        for number in 1...20_000 as ClosedRange<UInt64> {
            let identifier = try #require(ClientIdentifier("client-\(Int.random(in: 0..<400))"))
            switch Int.random(in: 0..<3) {
            case 0:
                owners[identifier] = nil
                dictionary[identifier] = nil
            case 1:
                let ownership = Supervision.Ownership(
                    user: UInt32(number % 7), client: nil, isQuit: number % 2 == 0, number: number,
                    givenUp: number * 3)
                owners[identifier] = ownership
                dictionary[identifier] = ownership
            default:
                owners[identifier]?.client = ClientID(rawValue: number << 32 | 5)
                dictionary[identifier]?.client = ClientID(rawValue: number << 32 | 5)
                owners[identifier]?.givenUp = 0
                dictionary[identifier]?.givenUp = 0
            }
            #expect(owners[identifier] == dictionary[identifier])
        }
        #expect(Set(owners.keys) == Set(dictionary.keys) && owners.keys.count == dictionary.count)
        for (identifier, ownership) in dictionary {
            #expect(owners[identifier] == ownership)
            let place = try #require(owners.place(of: identifier))
            #expect(owners[place: place] == ownership && owners.identifier(at: place) == identifier)
        }
    }

    @Test func anIdentifierHasItsPlaceUntilItIsRemoved() throws {
        var owners = Owners()
        var places: [ClientIdentifier: UInt32] = [:]
        for number in 0..<5_000 {
            let name = "client-\(Int.random(in: 0..<200))" + String(repeating: "x", count: number % 90)
            let identifier = try #require(ClientIdentifier(name))
            if owners[identifier] == nil {
                owners[identifier] = .init(user: 0, client: nil, number: UInt64(number), givenUp: 1)
                places[identifier] = owners.place(of: identifier)
            } else {
                owners[identifier] = nil
                places[identifier] = nil
            }
        }
        #expect(!places.isEmpty && Set(places.values).count == places.count)
        for (identifier, place) in places { #expect(owners.identifier(at: place) == identifier) }
    }
}

@Suite struct TokenListTests {
    @Test func itIsAnArray() {
        var list = TokenList()
        var array: [SocketToken] = []
        #expect(list.isEmpty)
        for number in 1...5 as ClosedRange<UInt64> {
            list.append(SocketToken(rawValue: number << 32))
            array.append(SocketToken(rawValue: number << 32))
            #expect(Array(list) == array)
        }
        list[0] = SocketToken(rawValue: 9 << 32)
        list[3] = SocketToken(rawValue: 10 << 32)
        array[0] = list[0]
        array[3] = list[3]
        while let last = array.popLast() {
            #expect(list.removeLast() == last)
            #expect(Array(list) == array)
        }
        #expect(list.isEmpty)
    }
}
