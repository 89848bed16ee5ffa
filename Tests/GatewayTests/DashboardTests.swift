import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import Nightbell
import Presentation
import ProgramTestSupport
import Testing

@Suite(
    "The dashboard in a browser", .serialized, .enabled(if: geteuid() == 0, "needs root"),
    .enabled(if: Browser.isInstalled, "needs chromium"), .timeLimit(.minutes(40)))
struct DashboardTests {
    private static let phone = "org.example.phone.alice"

    /// Opens the dashboard and gives it the token.
    private func enter(_ browser: Browser, _ fixture: GatewayFixture, _ token: String) throws -> Page {
        let page = try browser.open("http://127.0.0.1:\(fixture.port)/")
        #expect(try page.becomes("document.readyState === 'complete'"))
        try page.type(token, into: "#token", thenEnter: true)
        return page
    }

    private func row(_ identifier: String) -> String {
        "document.querySelector('tr[data-identifier=\"\(identifier)\"]')"
    }

    @Test(
        "It shows clients and why they are awake, follows their events, and acts for a token that permits it")
    func followsAndActs() throws {
        let fixture = try GatewayFixture(
            daemon: ["--set", "wakes.linger=60s", "--set", "budgets.wake=60s"])
        let token = try fixture.token("test", "read", "wake")
        try fixture.isReady()
        let alice = try fixture.supervisor.client(Self.phone)
        try alice.say("unix-pair flow")
        try alice.say("handover flow voip profile=lines interval=1000 within=3600000")
        try alice.say("hang-wake")
        try alice.say("background")
        try fixture.supervisor.reaches("suspended", Self.phone)
        let browser = try Browser()
        let page = try enter(browser, fixture, token)
        let alicesRow = row(Self.phone)
        #expect(try page.becomes("\(alicesRow).textContent.includes('suspended')"))
        #expect(try page.becomes("\(total("asleep")) === '1'"))
        #expect(try page.becomes("Number(\(total("wakes avoided"))) > 0"))
        #expect(try page.becomes("\(total("memory of the supervisor")).endsWith(' MiB')"))
        #expect(try page.value(total("memory reclaimed")) as? String == "0 B")
        #expect(try page.becomes("document.querySelector('#health').className === ''"))
        try page.keepPicture("gateway-asleep")

        // A client that comes later is shown without a reload.
        let bob = try fixture.supervisor.client("org.example.phone.bob")
        #expect(try page.becomes("\(row("org.example.phone.bob")).textContent.includes('inactive')"))
        try page.type("alice", into: "#search")
        #expect(try page.becomes("document.querySelectorAll('#rows tr').length === 1"))
        _ = try page.value(
            "document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))"
        )

        // Woken by a click; the page tells why, and why it is awake.
        try click("wake", Self.phone, page)
        #expect(try page.becomes("document.querySelector('#log .wake').textContent.includes('request')"))
        #expect(try page.becomes("\(alicesRow).textContent.includes('handling a wake')"))
        try alice.say("unhang")
        #expect(try page.becomes("\(why(Self.phone)) === 'lingering'"))
        try click("suspend", Self.phone, page)
        #expect(try page.becomes("\(alicesRow).textContent.includes('last woken: request')"))
        #expect(try page.becomes("\(total("wakes")) === '1'"))
        try page.keepPicture("gateway-woken")

        try page.call(
            "Emulation.setDeviceMetricsOverride",
            ["width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true])
        #expect(try page.becomes("innerWidth === 390 && document.documentElement.scrollWidth <= 390"))
        #expect(
            try page.becomes(
                "[...document.querySelectorAll('#rows button')].every((it) => it.getBoundingClientRect().height >= 36)"
            ))
        try page.keepPicture("gateway-phone")
        try tasksAndQuit("org.example.phone.bob", bob, page, fixture)
        try launch("org.example.carol", page, fixture)
        // Sleepers give memory back when it is short.
        #expect(try fixture.supervisor.nightbell("relieve").code == 0)
        #expect(try page.becomes("\(total("memory reclaimed")).endsWith(' MiB')"))
        #expect(browser.complaints.isEmpty, "\(browser.complaints)")
        _ = alice
    }

    private func total(_ name: String) -> String {
        "document.querySelector('[data-name=\"\(name)\"] dd').textContent"
    }

    private func why(_ identifier: String) -> String {
        "\(row(identifier)).querySelector('.why').textContent"
    }

    private func click(_ action: String, _ identifier: String, _ page: Page) throws {
        let button = "\(row(identifier)).querySelector('[data-action=\(action)]')"
        #expect(try page.becomes("\(button) && !\(button).hidden"), "there is no button: \(action)")
        // A question on the page keeps the click from returning.
        _ = try page.value("setTimeout(() => \(button).click())")
    }

    /// A client with a task is not suspended; it is quit by its user's second answer only.
    private func tasksAndQuit(
        _ name: String, _ client: Program, _ page: Page, _ fixture: GatewayFixture
    ) throws {
        try client.say("begin upload")
        try client.say("background")
        #expect(try page.becomes("\(why(name)) === 'background tasks (upload)'"))
        let notice = "document.querySelector('#notice').textContent"
        try click("suspend", name, page)
        #expect(try page.becomes("\(notice).startsWith('\(name): ')"))
        #expect(try page.value(notice) as? String != "\(name): suspend")
        try client.say("end upload")
        #expect(try page.becomes("\(why(name)) === 'lingering'"))
        try click("suspend", name, page)
        #expect(try page.becomes("\(notice) === '\(name): suspend'"))
        #expect(try page.becomes("\(row(name)).textContent.includes('suspended')"))

        _ = try page.value(
            """
            window.real = window.fetch;
            window.asked = [];
            window.fetch = (path, options) => { window.asked.push(path); return window.real(path, options); };
            """)
        let isAsked = "window.asked.includes('/v1/clients/\(name)/quit')"
        for isMeant in [false, true] {
            try click("quit", name, page)
            #expect(try page.answers("Quit \(name)?", isMeant))
            #expect(try page.value(isAsked) as? Bool == isMeant)
        }
        #expect(try page.becomes("\(notice) === '\(name): quit'"))
        #expect(try page.becomes("!\(row(name))"))
    }

    /// A client that has no process, and is launched.
    private func launch(_ name: String, _ page: Page, _ fixture: GatewayFixture) throws {
        // Each of its processes reads its commands here.
        let path = fixture.directory.file("commands")
        #expect(mkfifo(path, 0o600) == 0)
        let commands = try OwnedDescriptor(opening: path, O_RDWR)
        func say(_ line: String) {
            let bytes = Array((line + "\n").utf8)
            #expect(write(commands.rawValue, bytes, bytes.count) == bytes.count)
        }
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.supervisor.socket, "--identifier", name, "--", "/bin/sh", "-c",
                "exec '\(Program.product("scripted-client"))' <>'\(path)'",
            ])
        let hello = "hello \(name) fetch socket=\(fixture.supervisor.socket)"
        for line in [hello, "fetch-interval 3600000", "hibernate", "background"] { say(line) }
        #expect(try page.becomes("\(row(name)).textContent.includes('dormant')"), "\(client.output)")
        try click("launch", name, page)
        #expect(try page.becomes("document.querySelector('#notice').textContent === '\(name): launch'"))
        #expect(try page.becomes("\(row(name)).textContent.includes('launching')"))
        for line in [hello, "foreground"] { say(line) }
        #expect(try page.becomes("\(why(name)) === 'in the foreground'"))
    }

    @Test("A click arrives at the row that it is aimed at, and the focus stays, while events come")
    func clicksAmongEvents() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        try fixture.isReady()
        let names = (0..<6).map { "org.example.busy\($0)" }
        let busy = try names.map { try fixture.supervisor.suspended($0) }
        let alice = try fixture.supervisor.suspended(Self.phone)
        let browser = try Browser()
        let page = try enter(browser, fixture, token)
        try page.call(
            "Emulation.setDeviceMetricsOverride",
            ["width": 1_200, "height": 1_200, "deviceScaleFactor": 1, "mobile": false])
        let alicesRow = row(Self.phone)
        func place(_ selector: String) -> String {
            "document.querySelector('#rows tr:\(selector)').dataset.identifier === '\(Self.phone)'"
        }
        // That of the latest change is the first one.
        #expect(try page.becomes("document.querySelectorAll('#rows tr').length === 7"))
        #expect(try page.becomes(place("first-child")))
        var administration = try Administration(socketPath: fixture.supervisor.socket)
        var next = 0
        /// Events of the others, ten wakes a second.
        func wakeOthers(for milliseconds: Int64) throws {
            let end = BootClock.now() + milliseconds * 1_000_000
            while BootClock.now() < end {
                // One may be awake still.
                try? administration.wake(names[next % names.count])
                next += 1
                usleep(100_000)
            }
        }
        let button = "\(alicesRow).querySelector('[data-action=wake]')"
        let aim = try page.middle(of: button)
        let isHit = "document.elementFromPoint(\(aim.x), \(aim.y)) === \(button)"
        #expect(try page.value(isHit) as? Bool == true)
        try page.mouse("mouseMoved", at: aim)
        try wakeOthers(for: 3_000)
        #expect(try page.value(isHit) as? Bool == true)
        try page.mouse("mousePressed", at: aim)
        try wakeOthers(for: 300)
        try page.mouse("mouseReleased", at: aim)
        #expect(try page.becomes("document.querySelector('#notice').textContent === '\(Self.phone): wake'"))
        #expect(try fixture.supervisor.wakes(Self.phone) == 1)

        // Without a pointer the rows are in their order again.
        try fixture.supervisor.reaches("suspended", Self.phone)
        _ = try page.value("\(alicesRow).querySelector('[data-action=quit]').focus()")
        try page.mouse("mouseMoved", at: (1, 1))
        try wakeOthers(for: 3_000)
        #expect(try page.becomes(place("last-child")))
        #expect(
            try page.value("document.activeElement === \(alicesRow).querySelector('[data-action=quit]')")
                as? Bool == true)
        #expect(browser.complaints.isEmpty, "\(browser.complaints)")
        _ = (alice, busy)
    }

    @Test("A request that failed is forgotten with the next one that is answered")
    func failedRequest() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        try fixture.isReady()
        let browser = try Browser()
        let page = try enter(browser, fixture, token)
        let health = "document.querySelector('#health').className"
        #expect(try page.becomes("\(health) === ''"))
        _ = try page.value(
            """
            window.real = window.fetch;
            window.fetch = (path, options) => path.startsWith("/v1/clients")
                ? Promise.reject(new TypeError("lost")) : window.real(path, options);
            """)
        #expect(try page.becomes("\(health) === 'off'"))
        _ = try page.value("window.fetch = window.real")
        #expect(try page.becomes("\(health) === ''"))
        #expect(browser.complaints.isEmpty, "\(browser.complaints)")
    }

    @Test(
        "A load that never ends, for a token that was left, keeps neither it nor another token waiting",
        arguments: [true, false])
    func leftLoad(isSameToken: Bool) throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        try fixture.isReady()
        let alice = try fixture.supervisor.suspended(Self.phone)
        let browser = try Browser()
        let page = try browser.open("http://127.0.0.1:\(fixture.port)/")
        #expect(try page.becomes("document.readyState === 'complete'"))
        _ = try page.value(
            """
            window.real = window.fetch;
            window.fetch = (path, options) => !window.isLeft
                ? new Promise(() => { window.isAsked = true; }) : window.real(path, options);
            """)
        try page.type(isSameToken ? token : "nbgw_slow", into: "#token", thenEnter: true)
        #expect(try page.becomes("window.isAsked"))
        _ = try page.value("window.isLeft = true; document.querySelector('#leave').click()")
        try page.type(token, into: "#token", thenEnter: true)
        #expect(try page.becomes("\(row(Self.phone)).textContent.includes('suspended')"))
        #expect(browser.complaints.isEmpty, "\(browser.complaints)")
        _ = alice
    }

    @Test("A wrong token opens nothing, one that only reads does not act, a revoked one closes")
    func tokens() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        let alice = try fixture.supervisor.suspended(Self.phone)
        let browser = try Browser()
        let page = try enter(browser, fixture, "nbgw_wrong")
        #expect(
            try page.becomes("document.querySelector('#refusal').textContent.includes('token is needed')"))
        #expect(try page.value("document.querySelector('#house').hidden") as? Bool == true)
        try page.type(token, into: "#token", thenEnter: true)
        let alicesRow = row(Self.phone)
        #expect(try page.becomes("\(alicesRow).textContent.includes('suspended')"))
        _ = try page.value("\(alicesRow).querySelector('[data-action=wake]').click()")
        #expect(try page.becomes("document.querySelector('#notice').textContent.includes('the scope wake')"))
        #expect(try fixture.state(Self.phone, token: token) == "suspended")
        // Names are text, whatever they are.
        #expect(try page.value("document.scripts.length") as? Int == 1)
        _ = try Program.run("nightbell-gateway", ["token", "revoke", "test", "--tokens", fixture.tokenFile])
        #expect(try page.becomes("!document.querySelector('#door').hidden", within: 60_000))
        #expect(try page.text("#rows").isEmpty)
        #expect(browser.complaints.isEmpty, "\(browser.complaints)")
        _ = alice
    }
}
