import ChatService
import EdgeTestSupport
import Foundation
import Glibc
import Presentation
import ProgramTestSupport
import Testing

/// The page, in a browser.
@Suite(
    .serialized, .enabled(if: Browser.isInstalled, "\(Browser.path) is not installed"),
    .timeLimit(.minutes(40)))
struct BrowserTests {
    private func enter(_ page: Page, as name: String, room: String = "lobby") throws {
        try #require(try page.becomes("document.readyState === 'complete'"))
        try page.type(room, into: "#room")
        try page.type(name, into: "#name", thenEnter: true)
        try #require(try page.becomes("document.querySelector('#state').textContent === 'connected'"))
    }

    private func shows(_ text: String, from name: String, _ page: Page) throws -> Bool {
        try page.becomes(
            """
            [...document.querySelectorAll('.line')].some((line) =>
                line.querySelector('p').textContent === \(page.quoted(text))
                && line.querySelector('strong').textContent === \(page.quoted(name)))
            """)
    }

    /// Two pages chat and fall asleep; one sends a message, and the other gets it without being woken.
    @Test func twoPagesChatAndSleep() throws {
        let browser = try Browser()
        try withServer(idle: .milliseconds(300)) { server in
            let (ann, bob) = try (
                browser.open("http://127.0.0.1:\(server.port)/"),
                browser.open("http://127.0.0.1:\(server.port)/")
            )
            try #require(try ann.becomes("document.readyState === 'complete'"))
            try ann.keepPicture("1-entrance")
            try enter(ann, as: "Ann")
            try enter(bob, as: "Bob")
            #expect(try ann.becomes("document.querySelector('#presence').textContent === 'Ann, Bob'"))
            try ann.type("Hello Bob!", into: "#text", thenEnter: true)
            #expect(try shows("Hello Bob!", from: "Ann", bob) && shows("Hello Bob!", from: "Ann", ann))
            try bob.type("Hello Ann. Did you sleep?", into: "#text", thenEnter: true)
            #expect(try shows("Hello Ann. Did you sleep?", from: "Bob", ann))

            #expect(server.sleeps(2))
            let wakes = server.counters.wakes
            try ann.type("I did, until now; you still do.", into: "#text", thenEnter: true)
            #expect(try shows("I did, until now; you still do.", from: "Ann", bob))
            #expect(server.counters.wakes == wakes + 1 && server.counters.lost == 0)
            #expect(server.sleeps(2))
            try ann.keepPicture("2-chat")
            #expect(server.sleeps(2))
            #expect(browser.complaints == [])
        }
    }

    /// The page shows which connections sleep, and its queries keep none awake.
    @Test func itShowsTheSleepingMembers() throws {
        let browser = try Browser()
        try withServer(idle: .milliseconds(300), threads: 2) { server in
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try enter(page, as: "Ann")
            let bob = try ChatClient(server.port)
            try bob.join(as: "Bob")
            #expect(try bob.hear().type == "welcome")
            let marked =
                "[...document.querySelectorAll('#presence .asleep')].map((item) => item.textContent).join()"
            let counted = "document.querySelector('#sleepers').textContent"
            #expect(try page.becomes("\(marked) === 'Ann,Bob' && \(counted) === '2 of 2 connections asleep'"))
            #expect(try page.text("#presence") == "Ann, Bob")
            try page.keepPicture("7-asleep")
            // The page has sent its query, and Ann's connection sleeps on.
            let hibernations = server.counters.hibernations
            #expect(
                try page.becomes(
                    "performance.getEntriesByType('resource').length > 5 && \(marked) === 'Ann,Bob'"))
            #expect(server.counters.wakes == 0 && server.counters.hibernations == hibernations)
            // A frame that is not complete yet keeps a connection awake.
            try bob.write([0x81])
            #expect(try page.becomes("\(marked) === 'Ann' && \(counted) === '1 of 2 connections asleep'"))
            shutdown(bob.descriptor, CInt(SHUT_RDWR))
            #expect(try page.becomes("\(marked) === 'Ann' && \(counted) === '1 of 1 connections asleep'"))
            #expect(browser.complaints == [])
        }
    }

    /// User input is text, not markup.
    @Test func nothingThatPeopleWriteIsMarkup() throws {
        let browser = try Browser()
        try withServer { server in
            let page = try browser.open("http://127.0.0.1:\(server.port)/#%3Ci%3E")
            try enter(page, as: "<b>Ann</b>", room: "<i>&amp;")
            let texts = [
                "<img src=x onerror=\"document.title='bad'\">", "<script>document.title='bad'</script>",
                "&lt;b&gt; \\ \" ' `", "javascript:alert(1)", "\u{202E}right to left", "a\u{300}\u{301} 🐈‍⬛",
            ]
            for text in texts {
                try page.type(text, into: "#text", thenEnter: true)
                #expect(try shows(text, from: "<b>Ann</b>", page), "\(text)")
            }
            #expect(try page.text("#title") == "<i>&amp;" && page.text("#presence") == "<b>Ann</b>")
            #expect(try page.value("document.querySelectorAll('img, b, i, main script').length") as? Int == 0)
            #expect(try (page.value("document.title") as? String)?.hasPrefix("<i>&amp;") == true)
            // Nor does it break the page when it is long.
            try page.type(String(repeating: "w", count: 3_000), into: "#text", thenEnter: true)
            #expect(try page.becomes("document.querySelectorAll('.line').length === 7"))
            #expect(try page.value("document.documentElement.scrollWidth <= innerWidth") as? Bool == true)
            try page.keepPicture("3-markup")
            #expect(browser.complaints == [])
        }
    }

    @Test func itWorksInTheDarkAndOnAPhone() throws {
        let browser = try Browser()
        try withServer { server in
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try enter(page, as: "Ann")
            let light = try page.value("getComputedStyle(document.body).backgroundColor") as? String
            try page.call(
                "Emulation.setEmulatedMedia",
                ["features": [["name": "prefers-color-scheme", "value": "dark"]]])
            #expect(try page.value("getComputedStyle(document.body).backgroundColor") as? String != light)
            try page.call(
                "Emulation.setDeviceMetricsOverride",
                ["width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": true])
            let client = try ChatClient(server.port)
            try client.join(as: "Bob with a name of 24 b.")
            for number in 1...12 {
                try client.say("Line \(number) of what fits on no phone's screen at once.")
            }
            try page.type("Mine", into: "#text", thenEnter: true)
            #expect(try shows("Mine", from: "Ann", page))
            #expect(try page.value("document.documentElement.scrollWidth <= innerWidth") as? Bool == true)
            #expect(try page.value("document.documentElement.scrollHeight <= innerHeight") as? Bool == true)
            // The last line is in view, and so is the input field.
            let bottom = "document.querySelector('.line:last-child').getBoundingClientRect().bottom"
            let top = "document.querySelector('#say').getBoundingClientRect().top"
            #expect(try page.becomes("\(bottom) <= \(top) && \(bottom) > 0"))
            try page.keepPicture("4-phone-dark")
            #expect(browser.complaints == [])
        }
    }

    @Test func itConnectsAgainByItself() throws {
        let browser = try Browser()
        let port = try HeldPort()
        var configuration = ChatServer.Configuration()
        configuration.port = port.number
        configuration.hibernateAfter = .milliseconds(100)
        let first = try ChatServer(configuration)
        let page = try browser.open("http://127.0.0.1:\(first.port)/")
        try enter(page, as: "Ann")
        try page.type("Before", into: "#text", thenEnter: true)
        #expect(try shows("Before", from: "Ann", page))
        #expect(first.sleeps(1))
        try first.stop()
        #expect(try page.becomes("document.querySelector('#state').textContent.includes('lost')"))
        try page.keepPicture("5-lost")
        let second = try ChatServer(configuration)
        #expect(try page.becomes("document.querySelector('#state').textContent === 'connected'"))
        try page.type("After", into: "#text", thenEnter: true)
        #expect(try shows("After", from: "Ann", page))
        // A reloaded tab is in the same room.
        try page.call("Page.reload")
        #expect(try shows("After", from: "Ann", page))
        try page.type("And again", into: "#text", thenEnter: true)
        #expect(try shows("And again", from: "Ann", page))
        // Leaving shows the first form again.
        _ = try page.value("document.querySelector('#leave').click()")
        #expect(try page.becomes("!document.querySelector('#entrance').hidden"))
        #expect(eventually { second.counters.connections == 0 })
        #expect(browser.complaints == [])
        try second.stop()
    }

    @Test func aRefusedNameIsSaid() throws {
        let browser = try Browser()
        try withServer { server in
            let client = try ChatClient(server.port)
            try client.join(as: "Ann")
            #expect(try client.hear().type == "welcome")
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try #require(try page.becomes("document.readyState === 'complete'"))
            try page.type("Ann", into: "#name", thenEnter: true)
            #expect(try page.becomes("document.querySelector('.refusal').textContent.includes('taken')"))
            try page.keepPicture("6-taken")
            try enter(page, as: "Anne")
        }
    }

    /// While a room is too large for names, joins and leaves have none: the page does not know which of the
    /// earlier names are still there.
    @Test func aRoomThatWasTooLargeForNames() throws {
        let browser = try Browser()
        try withServer(idle: nil) { server in
            var clients = try (0...Limits.namedMembers).map { number in
                let client = try ChatClient(server.port)
                try client.join(as: "member \(number)")
                _ = try client.hear("welcome")
                return client
            }
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try enter(page, as: "Ann")
            #expect(try page.text("#presence") == "202 people")
            func leave(_ index: Int, showing expected: String) throws {
                clients.remove(at: index)
                #expect(try page.becomes("document.querySelector('#presence').textContent === '\(expected)'"))
            }
            // The first one had been named, the second one had not.
            try leave(9, showing: "201 people")
            try leave(0, showing: "200 people")
            #expect(browser.complaints == [])
        }
    }

    /// Its lines have the same numbers as those of the former server.
    @Test func linesOfAServerThatHasStartedAgain() throws {
        let browser = try Browser()
        let port = try HeldPort()
        var configuration = ChatServer.Configuration()
        configuration.port = port.number
        let first = try ChatServer(configuration)
        let page = try browser.open("http://127.0.0.1:\(first.port)/")
        try enter(page, as: "Ann")
        try page.type("Before", into: "#text", thenEnter: true)
        #expect(try shows("Before", from: "Ann", page))
        try first.stop()
        #expect(try page.becomes("!socket"))
        _ = try page.value("clearTimeout(retry)")
        let second = try ChatServer(configuration)
        let client = try ChatClient(second.port)
        try client.join(as: "Bob")
        for text in ["one", "two"] {
            try client.say(text)
            #expect(try client.hear("message").text == text)
        }
        _ = try page.value("connect()")
        #expect(try shows("two", from: "Bob", page) && shows("one", from: "Bob", page))
        #expect(try page.value("document.querySelectorAll('.line').length") as? Int == 2)
        #expect(browser.complaints == [])
        try second.stop()
    }

    private static let box = "document.querySelector('#text').value"
    private static let refusal = "document.querySelector('#chat .refusal').textContent"

    /// Text that the server refuses stays in the input field.
    @Test func aRefusedMessageIsNotLost() throws {
        let browser = try Browser()
        try withServer { server in
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try enter(page, as: "Ann")
            // More bytes than characters: the page does not check that.
            let long = String(repeating: "ü", count: 3_000)
            try page.type(long, into: "#text", thenEnter: true)
            #expect(try page.becomes("\(Self.refusal).includes('4096 bytes')"))
            #expect(try page.value(Self.box) as? String == long)
            try page.keepPicture("8-refused")
            // A shorter text is sent, and the field is empty.
            let short = String(repeating: "ü", count: 2_000)
            try page.type(short, into: "#text", thenEnter: true)
            #expect(try shows(short, from: "Ann", page))
            #expect(try page.becomes("\(Self.box) === '' && \(Self.refusal) === ''"))
            #expect(browser.complaints == [])
        }
    }

    /// The page learns on reconnection whether the message was delivered.
    @Test func wordsSaidBeforeTheConnectionAreLost() throws {
        let browser = try Browser()
        try withServer { server in
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try enter(page, as: "Ann")
            for isHeard in [false, true] {
                let messages = server.counters.messages
                _ = try page.value("socket.\(isHeard ? "onmessage" : "send") = () => {}; 0")
                try page.type("said", into: "#text", thenEnter: true)
                #expect(eventually { server.counters.messages == messages + (isHeard ? 1 : 0) })
                // Text added later is not part of the message.
                try page.call("Input.insertText", ["text": " and written"])
                // It may be back at once, on another socket.
                _ = try page.value("globalThis.former = socket; pause = 10; socket.close()")
                #expect(try page.becomes("socket !== former && isMember"))
                let left = isHeard ? " and written" : "said and written"
                #expect(try page.value(Self.box) as? String == left)
                let count = try page.value("document.querySelectorAll('.line').length") as? Int
                #expect(count == (isHeard ? 1 : 0))
            }
            #expect(browser.complaints == [])
        }
    }

    /// The page retries for a while, because the name may still belong to this tab's former connection, but
    /// not for ever.
    @Test(arguments: [false, true]) func aNameThatIsTakenMeanwhile(comesFree: Bool) throws {
        let browser = try Browser()
        try withServer { server in
            let client = try ChatClient(server.port)
            try client.join(as: "Bob")
            #expect(try client.hear().type == "welcome")
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try enter(page, as: "Ann")
            _ = try page.value("self.name = 'Bob'; pause = \(comesFree ? 100 : 5); socket.close()")
            #expect(try page.becomes("refusals > 1 && \(Self.refusal).includes('taken')"))
            if comesFree {
                shutdown(client.descriptor, CInt(SHUT_RDWR))
                #expect(try page.becomes("document.querySelector('#state').textContent === 'connected'"))
                #expect(try page.becomes("\(Self.refusal) === '' && refusals === 0"))
                #expect(try page.text("#presence") == "Bob")
            } else {
                #expect(try page.becomes("!document.querySelector('#entrance').hidden"))
                #expect(try page.text("#entrance .refusal") == "this name is taken in this room")
                #expect(try page.value("document.querySelector('#name').value") as? String == "Bob")
                #expect(try page.value("sessionStorage.getItem('self') === null && !socket") as? Bool == true)
                #expect(eventually { server.counters.connections == 1 })
                try enter(page, as: "Ann")
            }
            #expect(browser.complaints == [])
        }
    }
}

/// A tab that is left alone for as long as `NIGHTBELL_SERVER_SECONDS` says (`scripts/servers`: ten minutes).
@Suite(.enabled(if: Browser.isInstalled, "\(Browser.path) is not installed")) struct IdleTabServerTests {
    @Test func aTabThatIsLeftAloneStaysConnectedAndAsleep() throws {
        let seconds = ProcessInfo.processInfo.environment["NIGHTBELL_SERVER_SECONDS"].flatMap(Int.init) ?? 12
        let browser = try Browser()
        try withServer(idle: .seconds(1), ping: .seconds(5)) { server in
            let page = try browser.open("http://127.0.0.1:\(server.port)/")
            try #require(try page.becomes("document.readyState === 'complete'"))
            try page.type("Ann", into: "#name", thenEnter: true)
            #expect(try page.becomes("document.querySelector('#state').textContent === 'connected'"))
            #expect(server.sleeps(1))
            let end = time(nil) + seconds
            while time(nil) < end, server.counters.hibernated == 1 { poll(nil, 0, 200) }
            #expect(eventually { server.counters.pongs == server.counters.pingsSent })
            let counters = server.counters
            print("a tab alone for \(seconds) s: \(counters)")
            #expect(counters.connections == 1 && counters.hibernated == 1 && counters.hibernations == 1)
            #expect(counters.wakes == 0 && counters.lost == 0)
            #expect(counters.pingsSent >= (seconds - 5) / 5)
            // It is still there.
            let client = try ChatClient(server.port)
            try client.join(as: "Bob")
            try client.say("Good morning")
            #expect(try page.becomes("document.querySelector('.line p')?.textContent === 'Good morning'"))
            #expect(server.counters.wakes == 0)
            try page.keepPicture("7-left-alone")
            #expect(browser.complaints == [])
        }
    }
}
