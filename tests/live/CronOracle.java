/** The next times of cron expressions, as Spring and Quartz compute them: for tests/live/test_recur_java.py. */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.Date;
import java.util.TimeZone;

public class CronOracle {
    /** A line "spring|quartz TAB zone TAB seconds since 1970 TAB how many TAB expression" becomes a line of seconds, or of "!" and why not. */
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null;) {
            String[] f = line.split("\t");
            try {
                System.out.println(next(f[0], f[4], ZoneId.of(f[1]), Instant.ofEpochSecond(Long.parseLong(f[2])), Integer.parseInt(f[3])));
            } catch (Exception e) {
                System.out.println("!" + e.getMessage());
            }
        }
    }

    private static String next(String who, String expression, ZoneId zone, Instant from, int count) throws Exception {
        StringBuilder out = new StringBuilder();
        org.quartz.CronExpression quartz = null;
        org.springframework.scheduling.support.CronExpression spring = null;
        if (who.equals("quartz")) {
            quartz = new org.quartz.CronExpression(expression);
            quartz.setTimeZone(TimeZone.getTimeZone(zone));
        } else {
            spring = org.springframework.scheduling.support.CronExpression.parse(expression);
        }
        for (int i = 0; i < count; i++) {
            if (quartz != null) {
                Date at = quartz.getNextValidTimeAfter(Date.from(from));
                from = at == null ? null : at.toInstant();
            } else {
                ZonedDateTime at = spring.next(from.atZone(zone));
                from = at == null ? null : at.toInstant();
            }
            if (from == null)
                break;
            out.append(out.length() == 0 ? "" : " ").append(from.getEpochSecond());
        }
        return out.toString();
    }
}
