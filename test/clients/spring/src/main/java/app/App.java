package app;

import io.shedlock.Shedlock.Job;
import io.shedlock.Shedlock.Run;
import io.shedlock.Shedlock.Worker;
import java.sql.Timestamp;
import java.time.Duration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.autoconfigure.jdbc.DataSourceProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/** A service with a job of shedlock's and a lock of ShedLock's, for test/slow/clients-spring.pl. */
@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "5s")
public class App {
    @Autowired
    private JdbcTemplate template;

    @Bean
    LockProvider lockProvider(JdbcTemplate template) {
        return new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(template)
                .usingDbTime()
                .build());
    }

    @Bean(initMethod = "start", destroyMethod = "close")
    Worker worker(DataSourceProperties properties) {
        return new Worker(properties.initializeDataSourceBuilder().type(PGSimpleDataSource.class).build())
                .lease(Duration.ofSeconds(5))
                .waitInServer(Duration.ofSeconds(10))
                .stopAfter(Duration.ofSeconds(1))
                .job(new Job("spring", this::work)
                        .schedule("every 1 s").set("catch_up", "all").set("attempts", 3).set("backoff", Duration.ZERO));
    }

    private void work(Run run) throws InterruptedException {
        Thread.sleep(400);
        run.check();
        template.update("INSERT INTO spring_work (tick, token, pid) VALUES (?, ?, ?)", Timestamp.from(run.tick),
                run.token, ProcessHandle.current().pid());
    }

    @Scheduled(fixedDelay = 200)
    @SchedulerLock(name = "spring_lock", lockAtLeastFor = "500ms")
    void locked() throws InterruptedException {
        template.update("INSERT INTO spring_lock (pid) VALUES (?)", ProcessHandle.current().pid());
        Thread.sleep(100);
        template.update("UPDATE spring_lock SET ended = clock_timestamp() WHERE pid = ? AND ended IS NULL",
                ProcessHandle.current().pid());
    }

    public static void main(String[] args) {
        SpringApplication.run(App.class, args);
    }
}
