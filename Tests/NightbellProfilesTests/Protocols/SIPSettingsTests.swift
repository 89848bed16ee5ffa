import NightbellProfiles
import Testing

@Suite("Settings of sip")
struct SIPSettingsTests {
    @Test("Intervals are those of RFC 5626, within sensible limits")
    func intervals() throws {
        #expect(throws: SettingsError.intervalOutOfRange(.seconds(10), SIPSettings.streamInterval)) {
            try SIPSettings(tagKey: tagKey, streamInterval: .seconds(10))
        }
        #expect(throws: SettingsError.self) {
            try SIPSettings(tagKey: tagKey, datagramInterval: .seconds(121))
        }
        let settings = try SIPSettings(tagKey: tagKey, streamInterval: .seconds(840))
        #expect(try Profile(.sip(settings), over: .stream).pinging?.latest == .seconds(840))
    }
}
